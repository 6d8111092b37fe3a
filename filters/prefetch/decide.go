// Package prefetch is the filter that tells a node's daemon of a request's stored
// input while the request itself is still on its way: the hint of Smart Data Prefetch
// (Truffle, section 3). It looks at headers only and holds no request.
package prefetch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// statusBadRequest is HTTP's. The package net/http would double the module's size.
const statusBadRequest = 400

// daemonAuthority is the authority of what the daemon is told. The daemon listens on a unix socket, so
// it names nothing; HTTP only wants one.
const daemonAuthority = "headstart-node"

// table finds the function that a request is for, if that function has an input.
type table struct {
	hintCluster string
	inputs      map[string]input // by authority
}

// input is a function with an input reference.
type input struct {
	function string
	template filterapi.Template
}

func newTable(c *filterapi.Config) (*table, error) {
	t := &table{hintCluster: c.HintCluster, inputs: make(map[string]input)}
	for _, f := range c.Functions {
		if f.Input == "" {
			continue
		}
		template, err := filterapi.ParseTemplate(f.Input)
		if err != nil {
			return nil, fmt.Errorf("function %s: input: %w", f.Name, err)
		}
		for _, h := range f.Hosts {
			t.inputs[h] = input{f.Name, template}
		}
	}
	return t, nil
}

// lookup is the hot path: every request of the gateway passes through it.
func (t *table) lookup(authority string) (input, bool) {
	if port := strings.LastIndexByte(authority, ':'); port >= 0 {
		authority = authority[:port]
	}
	in, ok := t.inputs[strings.ToLower(authority)]
	return in, ok
}

// decision is what becomes of a request. The zero value leaves it untouched.
type decision struct {
	// set are request headers to set.
	set [][2]string
	// tell are the headers of the message to the daemon: a hint, or a refusal.
	tell [][2]string
	// reply answers the request instead of passing it on.
	reply *filterapi.Problem
}

// decide builds the input reference from a request's headers. newID is asked only when
// there is one.
func (in input) decide(headers [][2]string, newID func() string) decision {
	ref, ok, err := in.reference(headers)
	if wrong, isWrong := errors.AsType[*filterapi.ReferenceError](err); isWrong {
		reply := filterapi.NewProblem(statusBadRequest, filterapi.ReasonInputReferenceMalformed, "header "+wrong.Header, wrong.Error())
		reply.Function = in.function
		return decision{reply: reply, tell: in.message(filterapi.RefusalPath,
			[2]string{filterapi.HeaderReason, reply.Title}, [2]string{filterapi.HeaderField, reply.Field})}
	}
	if !ok {
		return decision{}
	}
	id := newID()
	set := [][2]string{{filterapi.HeaderRequest, id}, {filterapi.HeaderInput, ref}}
	return decision{set: set, tell: in.message(filterapi.HintPath, set...)}
}

// message returns the headers of a message to the daemon about a request.
func (in input) message(path string, own ...[2]string) [][2]string {
	return append([][2]string{
		{":method", "POST"},
		{":path", path},
		{":authority", daemonAuthority},
		{filterapi.HeaderFunction, in.function},
	}, own...)
}

// reference expands the template. A header that is there twice is refused: the
// function might read the other one.
func (in input) reference(headers [][2]string) (ref string, ok bool, err error) {
	var repeated error
	ref, ok, err = in.template.Expand(func(name string) (string, bool) {
		is := func(h [2]string) bool { return h[0] == name }
		first := slices.IndexFunc(headers, is)
		if first < 0 {
			return "", false
		}
		if slices.ContainsFunc(headers[first+1:], is) {
			repeated = &filterapi.ReferenceError{Header: name, Problem: "is given more than once"}
		}
		return headers[first][1], true
	})
	if repeated != nil {
		return "", false, repeated
	}
	return ref, ok, err
}
