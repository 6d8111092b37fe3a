package workflow

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// stepsMost is how many calls of a workflow are told apart.
	stepsMost = 128
	// taskMost is how much of a task's place is told, in bytes: its end, which has the task's name.
	taskMost = 256
	// recentMost is how many of a workflow's runs are kept, and pathMost how many calls of one.
	recentMost, pathMost = 8, 32
)

// record is what has come of a workflow's runs since the node knows its document.
type record struct {
	mu     sync.Mutex
	of     nodeapi.WorkflowRecord
	steps  map[string]*nodeapi.StepRecord // by the calls' tasks
	recent []*nodeapi.RunRecord           // the newest is the last one
}

func newRecord(workflow string) *record {
	return &record{of: nodeapi.WorkflowRecord{Name: workflow}, steps: map[string]*nodeapi.StepRecord{}}
}

// step has somebody change what is known of a call.
func (r *record) step(w *work, change func(*nodeapi.StepRecord)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.steps[w.step.Task]
	if s == nil {
		if len(r.steps) == stepsMost {
			return
		}
		s = &nodeapi.StepRecord{Task: told(w.step.Task), Squashed: map[string]int64{}, Saved: durationpb.New(0)}
		r.steps[w.step.Task] = s
	}
	change(s)
}

// told is what is told of a task's place.
func told(task string) string {
	return strings.ToValidUTF8(task[max(0, len(task)-taskMost):], "")
}

// ran takes a run that has ended.
func (r *record) ran(m *nodeapi.RunRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of.Runs++
	if m.GetResult() != resultOK {
		r.of.Failed++
	}
	if r.recent = append(r.recent, m); len(r.recent) > recentMost {
		r.recent = slices.Delete(r.recent, 0, 1)
	}
}

// said is what the operator hears.
func (r *record) said() *nodeapi.WorkflowRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := proto.CloneOf(&r.of)
	for _, task := range slices.Sorted(maps.Keys(r.steps)) {
		m.Steps = append(m.Steps, proto.CloneOf(r.steps[task]))
	}
	m.Recent = slices.Clone(r.recent)
	slices.Reverse(m.Recent)
	return m
}

// Records returns what has come of workflows' runs: of those of a namespace, or of the one that is named, if these are not empty.
func (o *Owner) Records(namespace, name string) (all []*nodeapi.WorkflowRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, of := range slices.Sorted(maps.Keys(o.programs)) {
		if (name == "" || of == name) && (namespace == "" || strings.HasPrefix(of, namespace+"/")) {
			all = append(all, o.programs[of].record.said())
		}
	}
	return all
}

// commits notes a call whose answer counts.
func (r *run) commits(w *work) {
	saved := w.saved()
	r.compiled.record.step(w, func(s *nodeapi.StepRecord) {
		s.Function = w.of.Function
		s.Calls++
		if w.attempt != nil {
			s.Ahead++
			s.Saved = durationpb.New(s.GetSaved().AsDuration() + saved)
		}
	})
	r.saved += saved
	if len(r.path) < pathMost {
		r.path = append(r.path, &nodeapi.RunStep{Task: told(w.step.Task), Ahead: w.attempt != nil})
	}
}

// guessed notes whether a guess was right.
func (r *run) guessed(w *work, right bool) {
	r.compiled.record.step(w, func(s *nodeapi.StepRecord) {
		if right {
			s.Right++
		} else {
			s.Wrong++
		}
	})
}

// ended notes the run.
func (r *run) ended(began time.Time, result string) {
	r.compiled.record.ran(&nodeapi.RunRecord{Id: r.request.ID, Began: timestamppb.New(began), Took: durationpb.New(time.Since(began)), Result: result,
		Path: r.path, Saved: durationpb.New(r.saved)})
}

// saved is how long a call had worked when its turn came: so much less the run has waited for it.
func (w *work) saved() time.Duration {
	if w.attempt == nil {
		return 0
	}
	until := w.turn
	if w.answered.Before(until) {
		until = w.answered
	}
	return until.Sub(w.began)
}
