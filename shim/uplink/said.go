package uplink

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// said is what a control plane wants the node to know, on this connection.
type said struct {
	functions  *nodeapi.Functions
	instances  *nodeapi.Instances
	triggers   *nodeapi.Triggers
	neighbours *nodeapi.Neighbours
	site       *nodeapi.Site
	passes     *nodeapi.Passes
	// keys count together with those of the others, whichever is followed.
	keys *nodeapi.Keys

	// What has come of sets whose last part has not: none of it counts until then.
	changes       []*nodeapi.FunctionChanges
	partInstances *nodeapi.Instances
	partTriggers  *nodeapi.Triggers
}

// hear takes a message, and returns what is new with it. It is not whole while parts are missing.
func (k *said) hear(m *nodeapi.ControlMessage) (news said, whole bool) {
	switch kind := m.GetKind().(type) {
	case *nodeapi.ControlMessage_Functions:
		news.functions = kind.Functions
	case *nodeapi.ControlMessage_FunctionChanges:
		k.changes = append(k.changes, kind.FunctionChanges)
		if kind.FunctionChanges.GetMore() {
			return said{}, false
		}
		news.functions = changed(k.functions, k.changes)
		k.changes = nil
	case *nodeapi.ControlMessage_Instances:
		news.instances = kind.Instances
		if some := k.partInstances; some != nil {
			news.instances = &nodeapi.Instances{Jobs: append(some.GetJobs(), kind.Instances.GetJobs()...),
				Volumes:     append(some.GetVolumes(), kind.Instances.GetVolumes()...),
				Connections: append(some.GetConnections(), kind.Instances.GetConnections()...),
				Instances:   append(some.GetInstances(), kind.Instances.GetInstances()...)}
		}
		if k.partInstances = nil; kind.Instances.GetMore() {
			k.partInstances = news.instances
			return said{}, false
		}
	case *nodeapi.ControlMessage_Triggers:
		news.triggers = kind.Triggers
		if some := k.partTriggers; some != nil {
			news.triggers = &nodeapi.Triggers{Triggers: append(some.GetTriggers(), kind.Triggers.GetTriggers()...)}
		}
		if k.partTriggers = nil; kind.Triggers.GetMore() {
			k.partTriggers = news.triggers
			return said{}, false
		}
	case *nodeapi.ControlMessage_Neighbours:
		news.neighbours = kind.Neighbours
	case *nodeapi.ControlMessage_Site:
		news.site = kind.Site
	case *nodeapi.ControlMessage_Passes:
		news.passes = kind.Passes
	}
	k.add(news)
	return news, true
}

// changed are the functions after some changes, sorted by name.
func changed(before *nodeapi.Functions, parts []*nodeapi.FunctionChanges) *nodeapi.Functions {
	byName := make(map[string]*nodeapi.Function, len(before.GetFunctions()))
	for _, f := range before.GetFunctions() {
		byName[f.GetName()] = f
	}
	now := &nodeapi.Functions{}
	for _, p := range parts {
		for _, name := range p.GetRemoved() {
			delete(byName, name)
		}
		for _, f := range p.GetFunctions() {
			byName[f.GetName()] = f
		}
		now.Stores, now.Destinations = p.GetStores(), p.GetDestinations()
	}
	now.Functions = slices.SortedFunc(maps.Values(byName), func(a, b *nodeapi.Function) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return now
}

// shared replaces functions by those that another control plane says in the same words, so that both are in memory
// once. Both lists are sorted by name; of those that are not, some are there twice.
func shared(ours, theirs []*nodeapi.Function) []*nodeapi.Function {
	for i, f := range ours {
		for len(theirs) > 0 && theirs[0].GetName() < f.GetName() {
			theirs = theirs[1:]
		}
		if len(theirs) > 0 && proto.Equal(theirs[0], f) {
			ours[i] = theirs[0]
		}
	}
	return ours
}

// add replaces what there is news of.
func (k *said) add(news said) {
	if news.functions != nil {
		k.functions = news.functions
	}
	if news.instances != nil {
		k.instances = news.instances
	}
	if news.triggers != nil {
		k.triggers = news.triggers
	}
	if news.neighbours != nil {
		k.neighbours = news.neighbours
	}
	if news.site != nil {
		k.site = news.site
	}
	if news.passes != nil {
		k.passes = news.passes
	}
}

// tell says all of it in the order in which it depends on each other.
func (k said) tell(h Handler) {
	if k.functions != nil {
		h.Functions(k.functions)
	}
	if k.site != nil {
		h.Site(k.site)
	}
	if k.passes != nil {
		h.Passes(k.passes)
	}
	if k.instances != nil { // what they need may come from the site
		h.Instances(k.instances)
	}
	if k.triggers != nil {
		h.Triggers(k.triggers)
	}
	if k.neighbours != nil {
		h.Neighbours(k.neighbours)
	}
}
