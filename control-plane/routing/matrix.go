package routing

import (
	"net/netip"

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
	Expected []filterapi.Expected
}
