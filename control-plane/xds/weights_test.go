package xds

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/routing"
)

func TestSplit(t *testing.T) {
	const a, b, c = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	for name, x := range map[string]struct {
		endpoints []string // the matrix's columns
		row       []uint32 // of edge; nil: it has none
		ready     []string
		want      []uint32
		why       string
	}{
		"by weight":             {[]string{a, b}, []uint32{3, 1}, []string{a, b}, []uint32{3, 1}, ""},
		"columns in any order":  {[]string{b, a}, []uint32{3, 1}, []string{a, b}, []uint32{1, 3}, ""},
		"one is not ready":      {[]string{a, b, c}, []uint32{5, 3, 1}, []string{a, c}, []uint32{5, 1}, ""},
		"a zero":                {[]string{a, b}, []uint32{0, 1}, []string{a, b}, []uint32{0, 1}, ""},
		"all the same":          {[]string{a, b}, []uint32{7, 7}, []string{a, b}, nil, ""},
		"a single one":          {[]string{a, b}, []uint32{7, 0}, []string{b}, nil, ""},
		"nothing ready":         {[]string{a}, []uint32{7}, nil, nil, ""},
		"a new one":             {[]string{a, b}, []uint32{30, 10}, []string{a, b, c}, []uint32{30, 10, 20}, "1 of 3 ready endpoints have no weight yet and count as average"},
		"a new one beside 0":    {[]string{a, b}, []uint32{30, 0}, []string{a, b, c}, []uint32{30, 0, 30}, "1 of 3 ready endpoints have no weight yet and count as average"},
		"unknown gateway":       {[]string{a, b}, nil, []string{a, b}, nil, "no weights for this gateway"},
		"short row":             {[]string{a, b}, []uint32{1}, []string{a, b}, nil, "1 weights for 2 endpoints"},
		"zeros":                 {[]string{a, b}, []uint32{0, 0}, []string{a, b}, nil, "all weights of ready endpoints are 0"},
		"zeros of those ready":  {[]string{a, b, c}, []uint32{0, 0, 4}, []string{a, b}, nil, "all weights of ready endpoints are 0"},
		"of none that is ready": {[]string{a}, []uint32{1}, []string{b, c}, nil, "the weights are of no endpoint that is ready"},
		"too much":              {[]string{a, b}, []uint32{math.MaxUint32, 1}, []string{a, b}, nil, "the sum of the weights is over 4294967295"},
		"too much with new":     {[]string{a}, []uint32{math.MaxUint32}, []string{a, b}, nil, "the sum of the weights is over 4294967295"},
	} {
		m := &routing.Matrix{Endpoints: addressesOf(x.endpoints...), Rows: map[string]routing.Row{"other": {}}}
		if x.row != nil {
			m.Rows["edge"] = routing.Row{Weights: x.row}
		}
		got, why := newPool(addressesOf(x.ready...), m).split("edge")
		if diff := cmp.Diff(x.want, got); diff != "" || !strings.HasPrefix(why, x.why) || x.why == "" && why != "" {
			t.Errorf("%s: why %q, want %q (-want +got):\n%s", name, why, x.why, diff)
		}
	}
	if got, why := newPool(addressesOf(a, b), nil).split("edge"); got != nil || why != "" {
		t.Errorf("without a matrix: %v, %q", got, why)
	}
}

// matrixOf draws what somebody might hand over.
func matrixOf(t *rapid.T) *routing.Matrix {
	weight := rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32())
	m := &routing.Matrix{Rows: map[string]routing.Row{}}
	for _, i := range rapid.SliceOfDistinct(rapid.IntRange(1, 6), rapid.ID).Draw(t, "columns") {
		m.Endpoints = append(m.Endpoints, addressesOf("10.0.0."+string(rune('0'+i)))...)
	}
	if rapid.Bool().Draw(t, "has a row") {
		m.Rows["edge"] = routing.Row{Weights: rapid.SliceOfN(weight, 0, 7).Draw(t, "row")}
	}
	return m
}

// Whatever is handed over, somebody gets the requests, Envoy can add the weights up, and
// equal weights are the same content as none.
func TestSplitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hosts []string
		for i := range rapid.IntRange(0, 6).Draw(t, "ready") {
			hosts = append(hosts, "10.0.0."+string(rune('1'+i)))
		}
		got, _ := newPool(addressesOf(hosts...), matrixOf(t)).split("edge")
		if got == nil {
			return
		}
		var sum uint64
		for _, w := range got {
			sum += uint64(w)
		}
		if len(got) != len(hosts) || sum == 0 || sum > math.MaxUint32 || slices.Min(got) == slices.Max(got) {
			t.Fatalf("%v for %v", got, hosts)
		}
	})
}
