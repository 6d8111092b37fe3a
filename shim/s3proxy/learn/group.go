package learn

// Group collects an observation of one instance. Its caller locks it. While the group is cold, the caller predicts for
// the requests that the group takes, and for no others. So each prediction is tested. The zero value is an empty group.
//
//	in := group.Begin(request) // when it arrives, perhaps before the instance has started
//	group.Read(object)         // whenever the instance reads
//	if in {
//		if o, ok := group.End(); ok { // when the request has ended
//			learner.Observe(o)
//		}
//	}
//
// A group ends with the last of its requests, and the next request begins another one. A request that arrives when the
// group has taken MaxRequests is in no group, so a busy instance is observed in samples. A group takes 1.5 MiB at most.
//
// If the instance does not start, its group is dropped. Fetches end with their group.
type Group struct {
	// Cold is set before an instance starts. End resets it.
	Cold bool

	requests      []Request
	running       int
	read, fetched []Object
	spoiled       bool // more was read or fetched than an observation can have
}

// Begin takes the request into the group, if it has room.
func (g *Group) Begin(r Request) bool {
	if len(g.requests) == MaxRequests {
		return false
	}
	g.requests = append(g.requests, r)
	g.running++
	return true
}

// Read notes that the instance reads an object. A read between two groups is ignored, but not one of an instance that
// starts.
func (g *Group) Read(o Object) { g.add(&g.read, o) }

// Fetched notes that an object is fetched because of a prediction for a request of the group. The caller calls it when
// the fetch begins, and again with the bytes that have come.
func (g *Group) Fetched(o Object) { g.add(&g.fetched, o) }

func (g *Group) add(to *[]Object, o Object) {
	if g.running == 0 && !g.Cold {
		return
	}
	for i, known := range *to {
		if known.Reference == o.Reference {
			(*to)[i].Bytes = max(known.Bytes, o.Bytes)
			return
		}
	}
	if len(*to) == MaxObjects {
		g.spoiled = true
		return
	}
	*to = append(*to, o)
}

// End notes that a request of the group has ended. With the last one the observation is complete. If the instance has
// read more than MaxObjects, the observation has nothing but the objects that were fetched, which count as wasted.
func (g *Group) End() (Observation, bool) {
	if g.running--; g.running > 0 {
		return Observation{}, false
	}
	o := Observation{g.requests, g.read, g.fetched, g.Cold}
	if g.spoiled {
		o.Requests, o.Read = nil, nil
	}
	*g = Group{}
	return o, true
}
