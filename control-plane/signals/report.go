package signals

import (
	"math"
	"time"
)

// The named metrics of a report, besides those that xds.data.orca.v3.OrcaLoadReport has
// fields for.
const (
	// InFlightMetric is how many requests instances have at the moment.
	InFlightMetric = "in_flight"
	// SojournTimeMetric is the mean time that an instance took for those that ended and did not
	// fail, in seconds, with what they waited inside for one of its workers.
	SojournTimeMetric = "sojourn_time"
	// ServiceTimeMetric is the same without that wait. Only a function's own program can know
	// it; of one that does not say it is estimated.
	ServiceTimeMetric = "service_time"
	// QueueWaitMetric is the mean time that those waited before, in seconds.
	QueueWaitMetric = "queue_wait"
	// CapacityMetric is how many requests the instances work on at a time.
	CapacityMetric = "capacity"
)

// Report is what somebody says of a function's requests on a node, in the names and units of
// xds.data.orca.v3.OrcaLoadReport: means since the report before.
type Report struct {
	// RPSFractional is how many requests ended per second, EPS how many of them failed.
	RPSFractional, EPS float64
	// ApplicationUtilization is InFlightMetric / CapacityMetric; 0: unknown. It stands in for
	// a capacity that is not told.
	ApplicationUtilization float64
	NamedMetrics           map[string]float64
}

// Reason is why something that was said does not count, or not as it was said.
type Reason string

// The reasons.
const (
	// NotANumber: NaN or infinite. The report does not count.
	NotANumber Reason = "NotANumber"
	// Negative: a number below 0. The report does not count.
	Negative Reason = "Negative"
	// Absurd: more than any node has. The report does not count.
	Absurd Reason = "Absurd"
	// Contradictory: more requests failed than ended. All have failed then.
	Contradictory Reason = "Contradictory"
	// FunctionUnknown: no such function. The report does not count.
	FunctionUnknown Reason = "FunctionUnknown"
	// TooOften: less than reportsApart after the one before. The report does not count.
	TooOften Reason = "TooOften"
	// Superseded: of a daemon of a name that another one has now. The report does not count.
	Superseded Reason = "Superseded"
)

// Usual tells whether the reason comes up when nodes and functions come and go, and after a
// stall: it is nobody's fault.
func (r Reason) Usual() bool { return r == FunctionUnknown || r == TooOften || r == Superseded }

const (
	// requestsMost is more requests, per second or at a time, than one node has: some
	// hundred thousand is what Envoy itself takes there.
	requestsMost = 1e6
	// secondsMost is longer than a request takes: the longest timeout is an hour.
	secondsMost = float64(time.Hour / time.Second)
)

// values are a report's, in requests and seconds.
type values struct {
	rps, eps, inFlight, sojourn, service, wait, capacity float64
}

// parse looks at a report. With ok false it does not count; otherwise r is empty or says how
// it was mended.
func parse(said Report) (v values, r Reason, ok bool) {
	v = values{rps: said.RPSFractional, eps: said.EPS, inFlight: said.NamedMetrics[InFlightMetric], sojourn: said.NamedMetrics[SojournTimeMetric], service: said.NamedMetrics[ServiceTimeMetric],
		wait: said.NamedMetrics[QueueWaitMetric], capacity: said.NamedMetrics[CapacityMetric]}
	for _, c := range []struct{ value, most float64 }{{v.rps, requestsMost}, {v.eps, requestsMost}, {v.inFlight, requestsMost}, {v.capacity, requestsMost},
		{v.sojourn, secondsMost}, {v.service, secondsMost}, {v.wait, secondsMost}, {said.ApplicationUtilization, requestsMost}} {
		switch {
		case math.IsNaN(c.value) || math.IsInf(c.value, 0):
			return values{}, NotANumber, false
		case c.value < 0:
			return values{}, Negative, false
		case c.value > c.most:
			return values{}, Absurd, false
		}
	}
	if v.capacity == 0 && said.ApplicationUtilization > 0 {
		v.capacity = min(v.inFlight/said.ApplicationUtilization, requestsMost)
	}
	if v.eps > v.rps {
		v.eps, r = v.rps, Contradictory
	}
	return v, r, true
}
