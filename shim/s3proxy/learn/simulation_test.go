package learn_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

// call is a request, with the references that the program reads for it.
type call struct {
	target string
	header map[string]string
	reads  []string
}

func (c call) request() learn.Request {
	header := http.Header{}
	for name, value := range c.header {
		header.Set(name, value)
	}
	return learn.NewRequest(c.target, header)
}

func bucket(key string) string { return "s3://videos/" + key }

// size is between 1 and 2 MB, another one for each reference.
func size(ref string) int64 {
	h := fnv.New32a()
	h.Write([]byte(ref))
	return 1e6 + int64(h.Sum32()%1e6)
}

func objects(refs []string) (all []learn.Object) {
	for _, ref := range refs {
		all = append(all, learn.Object{Reference: ref, Bytes: size(ref)})
	}
	return all
}

// figures are the counts of a simulation.
type figures struct {
	read, hits, predicted int
	readBytes             int64
	fetched, wasted       int64 // bytes
}

func (f figures) hitRatio() float64 { return float64(f.hits) / float64(max(f.read, 1)) }
func (f figures) waste() float64    { return float64(f.wasted) / float64(max(f.fetched, 1)) }

func (f figures) String() string {
	return fmt.Sprintf("%d of %d reads predicted (%.3f), %d predictions, wasted bytes %.3f (%.3f of those read)",
		f.hits, f.read, f.hitRatio(), f.predicted, f.waste(), float64(f.wasted)/float64(max(f.readBytes, 1)))
}

// serve has the learner see the calls, all of them under way together, and returns what its predictions were worth.
// They are for cold instances. What is predicted exists, and is fetched whole.
func serve(l *learn.Learner, cold bool, calls ...call) (f figures) {
	o := learn.Observation{Cold: cold}
	var read, predicted []string
	for _, c := range calls {
		r := c.request()
		o.Requests = append(o.Requests, r)
		for _, p := range l.Predict(r) {
			if cold && !slices.Contains(predicted, p.Reference) {
				predicted = append(predicted, p.Reference)
			}
		}
		for _, ref := range c.reads {
			if !slices.Contains(read, ref) {
				read = append(read, ref)
			}
		}
	}
	for _, ref := range predicted {
		f.predicted++
		f.fetched += size(ref)
		if slices.Contains(read, ref) {
			f.hits++
		} else {
			f.wasted += size(ref)
		}
	}
	for _, ref := range read {
		f.read++
		f.readBytes += size(ref)
	}
	o.Read, o.Fetched = objects(read), objects(predicted)
	l.Observe(o)
	return f
}

func (f *figures) add(g figures) {
	f.read += g.read
	f.hits += g.hits
	f.predicted += g.predicted
	f.readBytes += g.readBytes
	f.fetched += g.fetched
	f.wasted += g.wasted
}

// learning is what the benchmark allows before it measures.
const learning = 20

func TestLearnedPatterns(t *testing.T) {
	const requests = 400
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() string { return fmt.Sprintf("%016x", rng.Uint64()) }
	zipf := rand.NewZipf(rng, 1.1, 1, 999)
	for _, c := range []struct {
		name     string
		call     func(i int) call
		under    int    // requests that are under way together
		template string // the best one; empty: any
		promised bool
	}{
		{"a key and a suffix", func(int) call {
			key := random()
			return call{"/", map[string]string{"x-key": key, "x-env": "prod"}, []string{bucket("prod/" + key + ".jpg")}}
		}, 1, "s3://videos/prod/{header.x-key}.jpg", true},
		{"two objects", func(int) call {
			key := random()
			return call{"/", map[string]string{"x-key": key}, []string{bucket(key + ".jpg"), "s3://models/net.bin"}}
		}, 1, "s3://models/net.bin", true},
		{"segments of the path", func(int) call {
			camera, frame := random(), random()
			return call{"/v1/" + camera + "/frames/" + frame, nil, []string{bucket(camera + "/" + frame + ".jpg")}}
		}, 1, "/v1/{p2}/frames/{p4} s3://videos/{path.p2|urldecode}/{path.p4|urldecode}.jpg", true},
		{"a query that is encoded", func(int) call {
			key := "red flower/ä" + random()
			return call{"/detect?a=1&key=" + url.QueryEscape(key), nil, []string{bucket(key)}}
		}, 1, "s3://videos/{query.key|urldecode}", true},
		{"a URL in a header", func(int) call {
			key := random() + "/" + random() + ".jpg"
			return call{"/", map[string]string{"x-input": "s3://videos/" + key}, []string{bucket(key)}}
		}, 1, "s3://videos/{header.x-input|trimprefix:s3://videos/}", true},
		{"10 requests under way", func(int) call {
			key := random()
			return call{"/", map[string]string{"x-key": key}, []string{bucket(key + ".jpg"), "s3://models/net.bin"}}
		}, 10, "", true},
		{"popular keys, 10 requests under way", func(int) call {
			key := fmt.Sprint("k", zipf.Uint64())
			return call{"/", map[string]string{"x-key": key}, []string{bucket(key + ".jpg")}}
		}, 10, "s3://videos/{header.x-key}.jpg", true},
		{"popular keys, and 3 of 10 requests that read nothing", func(int) call {
			if rng.Float64() < 0.3 {
				return call{"/health", map[string]string{"x-probe": "1"}, nil}
			}
			key := fmt.Sprint("k", zipf.Uint64())
			return call{"/", map[string]string{"x-key": key}, []string{bucket(key + ".jpg")}}
		}, 1, "s3://videos/{header.x-key}.jpg", true},
		{"1 of 10 requests with a key that reads nothing", func(int) call {
			key := random()
			c := call{"/", map[string]string{"x-key": key}, nil}
			if rng.Float64() >= 0.1 {
				c.reads = []string{bucket(key + ".jpg")}
			}
			return c
		}, 1, "", false},
		{"two routes, and a parameter that is in the key by chance", func(i int) call {
			key, chance := random(), fmt.Sprint(rng.IntN(5))
			if i%2 == 0 {
				return call{"/thumb/" + key, nil, []string{"s3://thumbs/" + key + "/1/small.png"}}
			}
			return call{"/?page=" + chance, map[string]string{"x-key": key}, []string{bucket("3/" + key + ".jpg")}}
		}, 1, "", true},
		// No request tells these from the others. To predict would waste 3 of 10 bytes.
		{"3 of 10 requests with a key that read nothing", func(int) call {
			key := random()
			c := call{"/", map[string]string{"x-key": key}, nil}
			if rng.Float64() >= 0.3 {
				c.reads = []string{bucket(key + ".jpg")}
			}
			return c
		}, 1, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := learn.New()
			var f figures
			for i := 0; i < requests; i += c.under {
				var calls []call
				for j := range c.under {
					calls = append(calls, c.call(i+j))
				}
				if g := serve(l, true, calls...); i >= learning {
					f.add(g)
				}
			}
			t.Log(f)
			best := l.Templates()[0]
			t.Logf("%+v", best)
			if c.promised && f.hitRatio() < 0.9 {
				t.Errorf("hit ratio %.3f", f.hitRatio())
			}
			if f.wasted > 0 && float64(f.wasted) > learn.MaxWaste*float64(max(f.fetched, f.readBytes/5)) {
				t.Errorf("%.3f of the bytes are wasted", f.waste())
			}
			if c.template != "" && best.Text != c.template {
				t.Errorf("the best template is %s", best.Text)
			}
		})
	}
}

// What the program makes up is not predicted, however many requests are under way, whatever else the key has.
func TestRandomKeysAreNotPredicted(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, under := range []int{1, 10} {
		l := learn.New()
		var f figures
		for range 1000 / under {
			var calls []call
			for range under {
				header := map[string]string{"x-env": "prod", "x-key": fmt.Sprint(rng.Uint64())}
				made := bucket(fmt.Sprintf("prod/results/%016x", rng.Uint64()))
				calls = append(calls, call{"/results/1", header, []string{made}})
			}
			f.add(serve(l, true, calls...))
		}
		if f.predicted > 0 || len(l.Templates()) > 0 {
			t.Errorf("%d under way: %v, %v", under, f, l.Templates())
		}
	}
}

// An object of a request's body is not in what is seen of it. If clients name one several times in a row, and then
// another one, the next is a surprise each time.
func TestBodiesThatNameObjectsInARow(t *testing.T) {
	l := learn.New()
	var f figures
	for i := range 2000 {
		f.add(serve(l, true, call{"/", nil, []string{bucket(fmt.Sprint(i / 10))}}))
	}
	t.Log(f)
	if float64(f.wasted) > 0.05*float64(f.readBytes) {
		t.Errorf("%.3f of the read bytes are wasted", float64(f.wasted)/float64(f.readBytes))
	}
}

func TestAFunctionThatChangesIsLearnedAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const change, end = 100, 200
	l := learn.New()
	var before, during, after figures
	last := 0
	for i := range end {
		key, suffix := fmt.Sprint("k", rng.Uint64()), ".jpg"
		if i >= change {
			suffix = ".png"
		}
		f := serve(l, true, call{"/", map[string]string{"x-key": key}, []string{bucket(key + suffix)}})
		if f.wasted > 0 {
			last = i
		}
		switch {
		case i < change && i >= learning:
			before.add(f)
		case i >= change+learning:
			after.add(f)
		case i >= change:
			during.add(f)
		}
	}
	t.Log(before, "\n", during, "\n", after, "\nlast wasted:", last-change)
	if before.hitRatio() < 0.9 || after.hitRatio() < 0.9 || before.wasted+after.wasted > 0 || last-change > 5 {
		t.Errorf("before %v, after %v", before, after)
	}
}

// A program that keeps its model in memory reads it once for each instance.
func TestAModelThatIsReadWhenTheInstanceStarts(t *testing.T) {
	l := learn.New()
	var f figures
	for i := range 200 {
		c := call{"/", nil, nil}
		cold := i%10 == 0
		if cold {
			c.reads = []string{"s3://models/net.bin"}
		}
		if g := serve(l, cold, c); cold && i >= 80 {
			f.add(g)
		}
	}
	t.Log(f)
	if all := l.Templates(); f.hitRatio() < 0.9 || len(all) != 1 || all[0].Right != all[0].Tested {
		t.Errorf("%v, %+v", f, all)
	}
}

// Half of the requests are an attacker's. All that they can do is to stop predictions, or to have the node fetch a
// small part of what the program reads itself.
func TestAttackersAmongTheClients(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(rng *rand.Rand, l *learn.Learner) call
		hits   float64 // at least
	}{
		{"keys of other directories", func(rng *rand.Rand, _ *learn.Learner) call {
			return call{"/", map[string]string{"x-key": fmt.Sprint("archive/", rng.Uint64())}, nil}
		}, 0.9},
		{"keys that climb", func(rng *rand.Rand, _ *learn.Learner) call {
			return call{"/", map[string]string{"x-key": fmt.Sprint("../", rng.Uint64())}, nil}
		}, 0.9},
		{"keys like others", func(rng *rand.Rand, _ *learn.Learner) call {
			return call{"/", map[string]string{"x-key": fmt.Sprint(rng.Uint64())}, nil}
		}, 0},
		{"keys as soon as they are predicted", func(rng *rand.Rand, l *learn.Learner) call {
			c := call{"/", map[string]string{"x-key": fmt.Sprint(rng.Uint64())}, nil}
			if len(l.Predict(c.request())) == 0 {
				c.reads = []string{bucket(c.header["x-key"] + ".jpg")}
			}
			return c
		}, 0},
		{"100 headers with the key, of new names now and then", func(rng *rand.Rand, _ *learn.Learner) call {
			key, names := fmt.Sprint(rng.Uint64()), rng.IntN(20)
			c := call{"/", map[string]string{}, []string{bucket(key + ".jpg")}}
			for i := range 100 {
				c.header[fmt.Sprintf("x-%d-%d", names, i)] = key
			}
			return c
		}, 0.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 8))
			l := learn.New()
			var honest, attacker figures
			for i := range 2000 {
				key := fmt.Sprint(rng.Uint64())
				f := serve(l, true, call{"/", map[string]string{"x-key": key}, []string{bucket(key + ".jpg")}})
				g := serve(l, true, c.attack(rng, l))
				if i >= learning {
					honest.add(f)
					attacker.add(g)
				}
			}
			t.Log("honest:", honest, "\nattacker:", attacker)
			wasted, read := honest.wasted+attacker.wasted, honest.readBytes+attacker.readBytes
			if float64(wasted) > learn.MaxWaste*float64(read) {
				t.Errorf("%.3f of the read bytes are wasted", float64(wasted)/float64(read))
			}
			if honest.hitRatio() < c.hits {
				t.Errorf("honest clients: %v", honest)
			}
		})
	}
}
