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
	said map[speaker]*said
	last time.Time
}

type tallied struct {
	inFlight, ended, failed int
	sojourn, wait           time.Duration // of those that ended, together
	// service is the sum of what programs said of it.
	service  float64
	services int
}

// speaker is an instance's program. It may be several functions'.
type speaker struct{ function, instance string }

// said is what it said last: of its capacity ever, as that stays, and of its utilization since
// the last report. What it did not say is 0.
type said struct{ capacity, utilization float64 }

// newTally counts from now on.
func newTally(now time.Time) *tally {
	return &tally{of: map[string]*tallied{}, said: map[speaker]*said{}, last: now}
}

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

// heard takes what an instance's program said with an answer.
func (t *tally) heard(function, instance string, l programLoad) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[function]
	if f == nil {
		return // nothing of it is under way
	}
	if l.service > 0 {
		f.service += l.service
		f.services++
	}
	by := speaker{function, instance}
	if t.said[by] == nil {
		t.said[by] = &said{}
	}
	t.said[by].utilization = l.utilization
	if l.capacity > 0 {
		t.said[by].capacity = l.capacity
	}
}

// programs is what a function's programs said, together: those that have not answered yet have
// said nothing. Instances that are not there any more are forgotten.
func (t *tally) programs(there func(instance string) bool) map[string]programLoad {
	all, utilized := map[string]programLoad{}, map[string]float64{}
	for by, its := range t.said {
		if !there(by.instance) {
			delete(t.said, by)
			continue
		}
		sum := all[by.function]
		sum.capacity += its.capacity
		if its.utilization > 0 {
			utilized[by.function]++
			sum.utilization += (its.utilization - sum.utilization) / utilized[by.function] // the mean so far
			its.utilization = 0
		}
		all[by.function] = sum
	}
	return all
}

// tell adds what the programs said.
func (f *tallied) tell(l programLoad, to *nodeapi.FunctionSignals) {
	to.ApplicationUtilization = l.utilization
	if f.services > 0 {
		to.NamedMetrics[metricServiceTime] = f.service / float64(f.services)
	}
	if l.capacity > 0 {
		to.NamedMetrics[metricCapacity] = l.capacity
	}
}

// report is what there was since the report before, in the names of ORCA's load reports. there
// tells whether the node still has an instance; it must not call the tally.
func (t *tally) report(now time.Time, there func(instance string) bool) *nodeapi.Signals {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := now.Sub(t.last).Seconds()
	if seconds <= 0 {
		return &nodeapi.Signals{}
	}
	t.last = now
	m := &nodeapi.Signals{}
	programs := t.programs(there)
	for function, f := range t.of {
		if f.inFlight == 0 && f.ended == 0 {
			delete(t.of, function)
			continue
		}
		signals := &nodeapi.FunctionSignals{Function: function, RpsFractional: float64(f.ended) / seconds, Eps: float64(f.failed) / seconds,
			NamedMetrics: map[string]float64{metricInFlight: float64(f.inFlight)}}
		if f.ended > 0 {
			signals.NamedMetrics[metricSojournTime] = f.sojourn.Seconds() / float64(f.ended)
			signals.NamedMetrics[metricQueueWait] = f.wait.Seconds() / float64(f.ended)
		}
		f.tell(programs[function], signals)
		m.Functions = append(m.Functions, signals)
		*f = tallied{inFlight: f.inFlight}
	}
	slices.SortFunc(m.Functions, func(a, b *nodeapi.FunctionSignals) int { return cmp.Compare(a.GetFunction(), b.GetFunction()) })
	return m
}
