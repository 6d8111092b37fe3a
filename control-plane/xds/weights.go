package xds

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// pool is where one function is ready, together with the weights of these places.
type pool struct {
	addresses []netip.AddrPort // sorted, each once
	columns   []int            // of each address in matrix; -1: none
	matrix    *routing.Matrix  // nil: evenly
}

func newPool(addresses []netip.AddrPort, m *routing.Matrix) pool {
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
			if !yield(filterapi.RouteEndpoint{Address: p.addresses[i], Weight: weight, Expected: e}) {
				return
			}
		}
	}, ""
}

// average is of the endpoints that are ready, for those without a column; ok is false if none of
// them has one.
func (p pool) average(of []filterapi.Expected) (e filterapi.Expected, ok bool) {
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
			e.Workers += of[c].Workers / float64(n)
			e.Others += of[c].Others / float64(n)
		}
	}
	return e, true
}
