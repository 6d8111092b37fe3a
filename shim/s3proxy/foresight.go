package s3proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

const (
	// learnersMost is how many functions a node learns: each takes up to 200 KiB. Those that were used least recently go.
	learnersMost = 256
	// foreseenMost is how many predicted objects are fetched at a time, of all functions. Of a store's connections (80) and
	// of a link that its inputs fill with 8 that is a small part, and what is not predicted right costs no more.
	foreseenMost = 4
	// saveEvery is how often what was learned is saved: of a killed daemon that much is lost.
	saveEvery = time.Minute
	// foreseenTimes and foreseenSpare bound the size of a predicted object, by the mean size of those that its template has
	// named before, in bytes.
	foreseenTimes, foreseenSpare = 4, 1 << 20
)

// foresight learns which objects the programs of functions read for which requests.
type foresight struct {
	server *Server
	file   string       // where it outlives the daemon; empty: nowhere
	places *fair.Places // of fetches

	mu       sync.Mutex
	learners map[string]*learner // by the function's name
}

// learner is a function's.
type learner struct {
	of     *learn.Learner
	store  string // that its programs have read from
	used   time.Time
	groups map[string]*learn.Group // by the instance
}

// saved is what outlives the daemon of a learner.
type saved struct {
	Store   string          `json:"store"`
	Learner json.RawMessage `json:"learner"`
}

func newForesight(s *Server, file string) *foresight {
	f := &foresight{server: s, file: file, places: fair.NewPlaces(foreseenMost), learners: map[string]*learner{}}
	if err := f.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.config.Log.Warn("what was learned of functions is lost", "error", err)
	}
	return f
}

// load reads what an earlier daemon has learned.
func (f *foresight) load() error {
	if f.file == "" {
		return nil
	}
	b, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("reading what was learned: %w", err)
	}
	var all map[string]saved
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("reading what was learned: %w", err)
	}
	for function, one := range all {
		if of, err := learn.Parse(one.Learner); err == nil && len(f.learners) < learnersMost {
			f.learners[function] = &learner{of: of, store: one.Store, used: time.Now(), groups: map[string]*learn.Group{}}
		}
	}
	return nil
}

// save notes it for the next daemon.
func (f *foresight) save() error {
	if f.file == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.learners) == 0 {
		return nil
	}
	all := map[string]saved{}
	for function, l := range f.learners {
		b, err := json.Marshal(l.of)
		if err != nil {
			return fmt.Errorf("noting what was learned: %w", err)
		}
		all[function] = saved{l.store, b}
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = renameio.WriteFile(f.file, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting what was learned: %w", err)
	}
	return nil
}

// learner returns a function's, a new one if there is none; nil: there is no room for it. The caller holds mu.
func (f *foresight) learner(function string) *learner {
	l := f.learners[function]
	if l == nil {
		if len(f.learners) >= learnersMost && !f.forgetOne() {
			return nil
		}
		l = &learner{of: learn.New(), groups: map[string]*learn.Group{}}
		f.learners[function] = l
	}
	l.used = time.Now()
	return l
}

// forgetOne forgets the function that was used least recently, of those without requests: others still learn. It is false
// if there is none. The caller holds mu.
func (f *foresight) forgetOne() bool {
	idle := slices.DeleteFunc(slices.Collect(maps.Keys(f.learners)), func(function string) bool {
		return len(f.learners[function].groups) > 0
	})
	if len(idle) == 0 {
		return false
	}
	delete(f.learners, slices.MinFunc(idle, func(a, b string) int {
		return f.learners[a].used.Compare(f.learners[b].used)
	}))
	return true
}

// Foresee hears of a request that an instance is going to work on, and has what the function is known to read then fetched
// from now on if the instance starts for it. end is called when the request is over, and told whether the instance has
// worked on it.
func (s *Server) Foresee(function, instance, target string, header http.Header) (end func(worked bool)) {
	return s.foresight.begin(function, instance, learn.NewRequest(target, header))
}

func (f *foresight) begin(function, instance string, r learn.Request) (end func(worked bool)) {
	cold := f.server.starts(instance)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.learner(function)
	if l == nil {
		return func(bool) {}
	}
	g := l.groups[instance]
	if g == nil {
		g = &learn.Group{Cold: cold}
		l.groups[instance] = g
	}
	var expected []learn.Prediction
	in := g.Begin(r)
	if in && g.Cold {
		expected = l.of.Predict(r)
	}
	ahead := f.fetch(function, l.store, expected)
	return func(worked bool) {
		came := ahead.end()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !worked && g.Cold { // it did not start, which says nothing about what it reads
			delete(l.groups, instance)
			return
		}
		for _, o := range came {
			g.Fetched(o)
		}
		if !in {
			return
		}
		if o, over := g.End(); over {
			delete(l.groups, instance)
			l.of.Observe(o)
			f.server.config.Metrics.foreseen(o)
		}
	}
}

// read notes that a function's program has read an object.
func (f *foresight) read(function, instance, store, reference string, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.learners[function]
	if l == nil || l.groups[instance] == nil {
		return // nobody learns it
	}
	l.store = store
	l.groups[instance].Read(learn.Object{Reference: reference, Bytes: size})
}

// forget lets go of an instance that is no more.
func (f *foresight) forget(instance string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.learners {
		delete(l.groups, instance)
	}
}

// Learned is what has been learned of functions, best first for each; empty: of all.
func (s *Server) Learned(function string) map[string][]learn.Template {
	f := s.foresight
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string][]learn.Template{}
	for name, l := range f.learners {
		if function == "" || name == function {
			all[name] = l.of.Templates()
		}
	}
	return all
}

// ahead are objects that are fetched as a request is expected to have them read.
type ahead struct {
	cancel context.CancelFunc
	under  sync.WaitGroup

	mu   sync.Mutex
	came []learn.Object
}

// fetch begins to fetch.
func (f *foresight) fetch(function, store string, expected []learn.Prediction) *ahead {
	ctx, cancel := context.WithCancel(fair.For(f.server.ctx, function))
	a := &ahead{cancel: cancel}
	for _, p := range expected {
		a.under.Go(func() {
			leave, err := f.places.Wait(ctx)
			if err != nil {
				return // the request is over
			}
			leave = sync.OnceFunc(leave)
			defer leave()
			input := f.server.config.Objects.Fetch(ctx, objects.Request{ID: "foreseen:" + nodeapi.NewRequestID(), Function: function,
				Store: store, Reference: p.Reference, Limit: foreseenTimes*p.Bytes + foreseenSpare})
			defer input.Release()
			_ = input.Wait(ctx) // what fails, the program hears when it asks
			leave()
			<-ctx.Done() // it stays until the request is over
			a.mu.Lock()
			defer a.mu.Unlock()
			if way := input.Way(); way == objects.WayStore || way == objects.WayPeer {
				a.came = append(a.came, learn.Object{Reference: p.Reference, Bytes: input.Received()})
			}
		})
	}
	return a
}

// end ends the fetches, and returns what has come by them.
func (a *ahead) end() []learn.Object {
	a.cancel()
	a.under.Wait()
	return a.came
}
