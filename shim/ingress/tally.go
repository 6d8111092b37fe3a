package ingress

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Names of a tally's metrics, as control-plane/signals reads them.
const (
	metricInFlight    = "in_flight"
	metricSojournTime = "sojourn_time"
	metricQueueWait   = "queue_wait"
	metricServiceTime = "service_time"
	metricCapacity    = "capacity"
)

// tally counts the requests that the node's instances get by way of the daemon. Its methods
// may be called at the same time.
type tally struct {
	mu   sync.Mutex
	of   map[string]*tallied // by function; those without requests are left out
	last time.Time
}

type tallied struct {
	inFlight, ended, failed int
	sojourn, wait           time.Duration // of those that ended, together
	// said is what the function's program said last, service the sum of what it said.
	said     programLoad
	service  float64
	services int
}

// newTally counts from now on.
func newTally(now time.Time) *tally { return &tally{of: map[string]*tallied{}, last: now} }

// begin counts a request that an instance gets now, wait after it came to the node. end says
// that it is over, and how long the instance took.
func (t *tally) begin(function string, wait time.Duration) (end func(took time.Duration, failed bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[function]
	if f == nil {
		f = &tallied{}
		t.of[function] = f
	}
	f.inFlight++
	return func(took time.Duration, failed bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		f.inFlight--
		f.ended++
		f.sojourn, f.wait = f.sojourn+took, f.wait+wait
		if failed {
			f.failed++
		}
	}
}

// heard takes what the program said with an answer.
func (t *tally) heard(function string, l programLoad) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[function]
	if f == nil {
		return // nothing of it is under way
	}
	f.said = l
	if l.service > 0 {
		f.service += l.service
		f.services++
	}
}

// tell adds what the program said.
func (f *tallied) tell(to *nodeapi.FunctionSignals) {
	to.ApplicationUtilization = f.said.utilization
	if f.services > 0 {
		to.NamedMetrics[metricServiceTime] = f.service / float64(f.services)
	}
	if f.said.capacity > 0 {
		to.NamedMetrics[metricCapacity] = f.said.capacity
	}
}

// report is what there was since the report before, in the names of ORCA's load reports.
func (t *tally) report(now time.Time) *nodeapi.Signals {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := now.Sub(t.last).Seconds()
	if seconds <= 0 {
		return &nodeapi.Signals{}
	}
	t.last = now
	m := &nodeapi.Signals{}
	for function, f := range t.of {
		if f.inFlight == 0 && f.ended == 0 {
			delete(t.of, function)
			continue
		}
		said := &nodeapi.FunctionSignals{Function: function, RpsFractional: float64(f.ended) / seconds, Eps: float64(f.failed) / seconds,
			NamedMetrics: map[string]float64{metricInFlight: float64(f.inFlight)}}
		if f.ended > 0 {
			said.NamedMetrics[metricSojournTime] = f.sojourn.Seconds() / float64(f.ended)
			said.NamedMetrics[metricQueueWait] = f.wait.Seconds() / float64(f.ended)
		}
		f.tell(said)
		m.Functions = append(m.Functions, said)
		*f = tallied{inFlight: f.inFlight}
	}
	slices.SortFunc(m.Functions, func(a, b *nodeapi.FunctionSignals) int { return cmp.Compare(a.GetFunction(), b.GetFunction()) })
	return m
}
