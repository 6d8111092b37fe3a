// Package observed notes what requests of observed functions name.
package observed

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/distinct"
)

const (
	// InputsMost is how many inputs are noted on the node, of up to 7 KiB each. Metrics count the requests of all.
	InputsMost = 1024
	// OwnMost is how many of them a namespace has, so that it leaves others theirs.
	OwnMost = 64
	// LatestMost is how many references are kept as they are: enough to see whether they are meant so.
	LatestMost = 8
	// textMost is how many bytes are kept of a reference, or of what a request lacked. Few keys are longer.
	textMost = 256
	// cut ends what is longer.
	cut = "…"
)

// Notes are a node's. Their methods may be called at the same time.
type Notes struct {
	mu        sync.Mutex
	functions map[string]*note // by name
	// How many inputs they have, in all and by namespace.
	inputs int
	own    map[string]int
}

// note is what there is to say of one function.
type note struct {
	templates  reference.Inputs
	inputs     map[string]*input
	incomplete int64
	field      string // what was wrong in the latest of those
	refused    int64
	unnamed    int64
}

type input struct {
	requests  int64
	different distinct.Sketch
	latest    []*nodeapi.NamedReference // the latest in front
}

// New returns empty notes.
func New() *Notes { return &Notes{functions: map[string]*note{}, own: map[string]int{}} }

// Named notes the references that a request of the function has named.
func (n *Notes) Named(f *nodeapi.Function, refs reference.Inputs) {
	n.with(f, func(of *note) {
		for name, ref := range refs {
			i := of.inputs[name]
			if i == nil {
				continue
			}
			i.requests++
			i.different.Add(ref)
			now := &nodeapi.NamedReference{Reference: short(ref), At: timestamppb.Now()}
			i.latest = slices.DeleteFunc(i.latest, func(r *nodeapi.NamedReference) bool { return r.GetReference() == now.GetReference() })
			i.latest = slices.Insert(i.latest[:min(len(i.latest), LatestMost-1)], 0, now)
		}
	})
}

// Unnamed notes a request that has nothing that a template names.
func (n *Notes) Unnamed(f *nodeapi.Function) {
	n.with(f, func(of *note) { of.unnamed++ })
}

// Incomplete notes a request in which something is missing, there twice or not usable, such as "header x-key".
func (n *Notes) Incomplete(f *nodeapi.Function, field string) {
	n.with(f, func(of *note) { of.incomplete, of.field = of.incomplete+1, short(field) })
}

// Refused notes a request that names what the function may not read.
func (n *Notes) Refused(f *nodeapi.Function) {
	n.with(f, func(of *note) { of.refused++ })
}

// with changes a function's note, if it has one for these templates.
func (n *Notes) with(f *nodeapi.Function, change func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.functions[f.GetName()]; of != nil && maps.Equal(of.templates, f.GetObserved()) {
		change(of)
	}
}

// add begins a note, if there is room. The caller holds mu.
func (n *Notes) add(f *nodeapi.Function) {
	more, of := len(f.GetObserved()), namespace(f.GetName())
	if n.inputs+more > InputsMost || n.own[of]+more > OwnMost {
		return
	}
	n.inputs, n.own[of] = n.inputs+more, n.own[of]+more
	added := &note{templates: f.GetObserved(), inputs: map[string]*input{}}
	for name := range added.templates {
		added.inputs[name] = &input{}
	}
	n.functions[f.GetName()] = added
}

// drop forgets a function, if it is noted. The caller holds mu.
func (n *Notes) drop(name string) {
	known := n.functions[name]
	if known == nil {
		return
	}
	delete(n.functions, name)
	of := namespace(name)
	n.inputs -= len(known.inputs)
	if n.own[of] -= len(known.inputs); n.own[of] == 0 {
		delete(n.own, of)
	}
}

// Keep has the notes be of the observed functions among these. What others named is forgotten, and so is what other templates
// did.
func (n *Notes) Keep(functions []*nodeapi.Function) {
	observed := map[string]*nodeapi.Function{}
	for _, f := range functions {
		if len(f.GetObserved()) > 0 {
			observed[f.GetName()] = f
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, of := range n.functions {
		if f := observed[name]; f == nil || !maps.Equal(of.templates, f.GetObserved()) {
			n.drop(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(observed)) { // so that all nodes have room for the same
		if n.functions[name] == nil {
			n.add(observed[name])
		}
	}
}

// List is what was noted of the functions of a namespace, an entry for each of their inputs; empty: of all.
func (n *Notes) List(of string) (entries []*nodeapi.CacheEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.functions)) {
		if of != "" && of != namespace(name) {
			continue
		}
		f := n.functions[name]
		for _, input := range f.templates.Names() {
			i := f.inputs[input]
			entries = append(entries, &nodeapi.CacheEntry{Namespace: namespace(name), Reference: f.templates[input],
				Observed: &nodeapi.Observed{Function: name, Input: input, Requests: i.requests, Incomplete: f.incomplete, Field: f.field,
					Refused: f.refused, Unnamed: f.unnamed, Sketch: i.different.Hashes(), Latest: slices.Clone(i.latest)}})
		}
	}
	return entries
}

func namespace(function string) string {
	namespace, _, _ := strings.Cut(function, "/")
	return namespace
}

// short is a text of bounded length, of its own memory. A query, which may have a signature, is left out.
func short(s string) string {
	if strings.HasPrefix(s, "http") {
		s, _, _ = strings.Cut(s, "?")
	}
	if len(s) <= textMost {
		return strings.Clone(s)
	}
	return strings.ToValidUTF8(s[:textMost-len(cut)], "") + cut
}
