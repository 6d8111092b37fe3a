package xds

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Weights say how each gateway spreads the requests of each function over its endpoints,
// by the function's name. Functions that are not in it are spread evenly.
type Weights map[string]*Matrix

// Matrix is W of one function (FaaSt, equation 1): a row for each gateway. It must not be
// changed once it has been handed over: who has seen the pointer looks at it no more.
//
// What of it cannot be used is served evenly, with a reason in Problems: a gateway without
// a row, a row of another length than Endpoints, a row that has nothing but zeros for the
// endpoints that are ready, or more than Envoy can add up. An endpoint without a column,
// such as an instance that has just become ready, counts as the average of the gateway's
// others: during a rollout all the load would else stay on the last old instance.
type Matrix struct {
	// Endpoints are the columns. Those that are not ready are skipped.
	Endpoints []netip.AddrPort
	// Rows are by gateway, which is its node's name.
	Rows map[string]Row
}

// Row is one gateway's.
type Row struct {
	// Weights, one for each column, count in relation to each other. One of 0 gets no request
	// as long as the others are well; it takes over what they no longer can.
	Weights []uint32
	// Expected, one for each column, is what the gateway's filter reckons with. nil: there are
	// weights only, and they rule.
	Expected []Expected
}

// Expected is what a request from one gateway to one endpoint is expected to meet, as
// filters/route takes it.
type Expected struct {
	// RTT is the round trip between the two.
	RTT time.Duration
	// Service is how long a request holds one of the endpoint's workers.
	Service time.Duration
	// Workers is how many requests the endpoint works on at the same time; 0: not known.
	Workers int
	// Others is how many requests the endpoint has in flight on average that are not this
	// gateway's.
	Others float64
}

// pool is where one function is ready, together with the weights of these places.
type pool struct {
	addresses []netip.AddrPort // sorted, each once
	columns   []int            // of each address in matrix; -1: none
	matrix    *Matrix          // nil: evenly
}

func newPool(addresses []netip.AddrPort, m *Matrix) pool {
	p := pool{addresses: addresses, matrix: m}
	if m == nil {
		return p
	}
	column := make(map[netip.AddrPort]int, len(m.Endpoints))
	for i, a := range m.Endpoints {
		column[a] = i
	}
	p.columns = make([]int, len(addresses))
	for i, a := range addresses {
		var ok bool
		if p.columns[i], ok = column[a]; !ok {
			p.columns[i] = -1
		}
	}
	return p
}

// split returns the gateway's weight for each address; nil: all the same, which is one
// content however it comes about. why says what of the matrix could not be used.
func (p pool) split(gateway string) (weights []uint32, why string) {
	if p.matrix == nil || len(p.addresses) < 2 {
		return nil, "" // there is nothing to choose from
	}
	r, ok := p.matrix.Rows[gateway]
	row := r.Weights
	switch {
	case !ok:
		return nil, "no weights for this gateway; its requests are spread evenly"
	case len(row) != len(p.matrix.Endpoints):
		return nil, fmt.Sprintf("%d weights for %d endpoints; requests are spread evenly", len(row), len(p.matrix.Endpoints))
	}
	weights = make([]uint32, len(p.addresses))
	var sum uint64
	var positive, unknown int
	for i, c := range p.columns {
		if c < 0 {
			unknown++
			continue
		}
		if weights[i] = row[c]; row[c] > 0 {
			positive, sum = positive+1, sum+uint64(row[c])
		}
	}
	switch {
	case sum == 0 && unknown == len(p.addresses):
		return nil, "the weights are of no endpoint that is ready; requests are spread evenly"
	case sum == 0:
		return nil, "all weights of ready endpoints are 0; requests are spread evenly"
	}
	if unknown > 0 {
		average := max(sum/uint64(positive), 1)
		sum += average * uint64(unknown)
		for i, c := range p.columns {
			if c < 0 {
				weights[i] = uint32(average)
			}
		}
		why = fmt.Sprintf("%d of %d ready endpoints have no weight yet and count as average", unknown, len(p.addresses))
	}
	if sum > math.MaxUint32 { // Envoy refuses endpoints whose weights come to more
		return nil, "the sum of the weights is over 4294967295; requests are spread evenly"
	}
	if !slices.ContainsFunc(weights, func(w uint32) bool { return w != weights[0] }) {
		return nil, why
	}
	return weights, why
}

// expect returns what the gateway's filter reckons with for each address; nil: there is
// nothing to pick from, or nothing known to pick by. weights are of split. An endpoint
// without a column counts as average, as there. why says what could not be used.
func (p pool) expect(gateway string, weights []uint32) (expected iter.Seq[filterapi.RouteEndpoint], why string) {
	if p.matrix == nil || len(p.addresses) < 2 {
		return nil, ""
	}
	row := p.matrix.Rows[gateway]
	switch {
	case row.Expected == nil:
		return nil, ""
	case len(row.Expected) != len(p.matrix.Endpoints):
		return nil, fmt.Sprintf("%d expectations for %d endpoints; weights alone say where requests go", len(row.Expected), len(p.matrix.Endpoints))
	case len(p.addresses) > filterapi.MaxRouteEndpoints:
		return nil, fmt.Sprintf("%d endpoints, of more than %d no filter picks one; weights alone say where requests go", len(p.addresses), filterapi.MaxRouteEndpoints)
	}
	average, ok := p.average(row.Expected)
	if !ok {
		return nil, "" // split has said so
	}
	return func(yield func(filterapi.RouteEndpoint) bool) {
		for i, c := range p.columns {
			e := average
			if c >= 0 {
				e = row.Expected[c]
			}
			weight := uint32(1)
			if weights != nil {
				weight = weights[i]
			}
			if !yield(filterapi.RouteEndpoint{Address: p.addresses[i], Weight: weight, RTT: e.RTT, Service: e.Service, Workers: e.Workers, Others: e.Others}) {
				return
			}
		}
	}, ""
}

// average is of the endpoints that are ready, for those without a column; ok is false if none of
// them has one.
func (p pool) average(of []Expected) (e Expected, ok bool) {
	n := 0
	for _, c := range p.columns {
		if c >= 0 {
			n++
		}
	}
	if n == 0 || n == len(p.columns) {
		return e, n > 0 // none has a column, or all have and need no average
	}
	// Each is divided before it is added: durations can be as large as they are.
	for _, c := range p.columns {
		if c >= 0 {
			e.RTT += of[c].RTT / time.Duration(n)
			e.Service += of[c].Service / time.Duration(n)
			e.Workers += of[c].Workers / n
			e.Others += of[c].Others / float64(n)
		}
	}
	return e, true
}

// Problem is what of the Weights, or of what was sent to a gateway, could not be used.
type Problem struct {
	// Function is empty when it is about all that the gateways have.
	Function string
	Gateways []string // sorted
	Message  string
}

// problems has one Problem for all gateways that have the same.
type problems map[[2]string]*Problem // by function and message

func (p problems) add(function, gateway, message string) {
	k := [2]string{function, message}
	if p[k] == nil {
		p[k] = &Problem{Function: function, Message: message}
	}
	p[k].Gateways = append(p[k].Gateways, gateway)
}

func (p problems) sorted() []Problem {
	out := make([]Problem, 0, len(p))
	for _, problem := range p {
		slices.Sort(problem.Gateways)
		problem.Gateways = slices.Compact(problem.Gateways) // one may have two streams
		out = append(out, *problem)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Message, b.Message))
	})
	return out
}
