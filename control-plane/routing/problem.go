package routing

import (
	"cmp"
	"slices"
)

// Problem is one thing that is not routed as it was meant to be: what of the Weights, or of what was
// sent to a gateway, could not be used.
type Problem struct {
	// Function is empty when it is about all that the gateways have.
	Function string `json:"function,omitempty"`
	// Gateways are those that it is so for, by their nodes' names, sorted.
	Gateways []string `json:"gateways"`
	Message  string   `json:"message"`
}

// Problems has one Problem for all gateways that have the same, by function and message.
type Problems map[[2]string]*Problem

// Add adds gateways to the problem of a function. Without gateways it is about none of them.
func (p Problems) Add(function, message string, gateways ...string) {
	k := [2]string{function, message}
	if p[k] == nil {
		p[k] = &Problem{Function: function, Gateways: []string{}, Message: message}
	}
	p[k].Gateways = append(p[k].Gateways, gateways...)
}

// Sorted is all of them, by function and message.
func (p Problems) Sorted() []Problem {
	var out []Problem
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
