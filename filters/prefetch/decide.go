// Package prefetch is the filter that tells a node's daemon of a request's stored
// input while the request itself is still on its way: the hint of Smart Data Prefetch
// (Truffle, section 3). It looks at headers only and holds no request.
package prefetch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// statusBadRequest is HTTP's. The package net/http would double the module's size.
const statusBadRequest = 400

// daemonAuthority is the authority of what the daemon is told. The daemon listens on a unix socket, so
// it names nothing; HTTP only wants one.
const daemonAuthority = "headstart-node"

// table finds the function that a request is for.
type table struct {
	hintCluster string
	functions   map[string]function // by host
}

// function is what the filter does for a function's requests.
type function struct {
	name string
	// inputs are empty if the function has no stored input.
	inputs reference.Templates
	// endpoint is where requests with an input are to go; empty where routes see to that.
	endpoint string
}

func newTable(c *filterapi.Config) (*table, error) {
	t := &table{hintCluster: c.HintCluster, functions: make(map[string]function)}
	for _, f := range c.Functions {
		inputs, err := reference.ParseTemplates(f.Templates())
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Name, err)
		}
		fn := function{name: f.Name, inputs: inputs, endpoint: c.IngressEndpoint}
		if len(fn.inputs) == 0 && fn.endpoint == "" {
			continue // there is nothing to do for its requests
		}
		for _, h := range f.Hosts {
			t.functions[h] = fn
		}
	}
	return t, nil
}

// byAuthority finds the function by the request's own authority.
func (t *table) byAuthority(authority string) (function, bool) {
	if port := strings.LastIndexByte(authority, ':'); port >= 0 {
		authority = authority[:port]
	}
	fn, ok := t.functions[strings.ToLower(authority)]
	return fn, ok
}

// byHost finds the function by a host as configurations have it.
func (t *table) byHost(host string) (function, bool) {
	fn, ok := t.functions[host]
	return fn, ok
}

// serviceOf returns the host of the service that an Envoy cluster of Istio's stands for,
// which is named outbound|<port>|<subset>|<host>. ok is false for clusters that are named
// otherwise.
func serviceOf(cluster string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(cluster, "outbound|")
	if !ok || strings.Count(rest, "|") != 2 {
		return "", false
	}
	return rest[strings.LastIndexByte(rest, '|')+1:], true
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

// decide says what becomes of a request with these headers. newID is asked only when the
// request has an input.
func (f function) decide(headers [][2]string, newID func() string) decision {
	refs, err := f.references(headers)
	if wrong, isWrong := errors.AsType[*reference.Error](err); isWrong {
		reply := filterapi.NewProblem(
			statusBadRequest, filterapi.ReasonInputReferenceMalformed, wrong.Field, wrong.Error(),
		)
		reply.Function = f.name
		return decision{reply: reply, tell: f.message(filterapi.RefusalPath,
			[2]string{filterapi.HeaderReason, reply.Title}, [2]string{filterapi.HeaderField, reply.Field})}
	}
	var d decision
	if len(refs) > 0 {
		d.set = [][2]string{{filterapi.HeaderRequest, newID()}}
		if ref := refs[""]; ref != "" {
			d.set = append(d.set, [2]string{filterapi.HeaderInput, ref})
		}
		if named := refs.String(); named != "" {
			d.set = append(d.set, [2]string{filterapi.HeaderInputs, named})
		}
		d.tell = f.message(filterapi.HintPath, d.set...)
	}
	if f.endpoint != "" {
		endpoint := f.endpoint
		if len(refs) == 0 {
			endpoint = filterapi.AnyEndpoint
		}
		d.set = append(d.set, [2]string{filterapi.HeaderFunction, f.name}, [2]string{filterapi.HeaderEndpoint, endpoint})
	}
	return d
}

// message returns the headers of a message to the daemon about a request.
func (f function) message(path string, own ...[2]string) [][2]string {
	return append([][2]string{
		{":method", "POST"},
		{":path", path},
		{":authority", daemonAuthority},
		{filterapi.HeaderFunction, f.name},
	}, own...)
}

// references expands the templates.
func (f function) references(headers [][2]string) (reference.Inputs, error) {
	values := func(name string) []string {
		var all []string
		for _, h := range headers {
			if h[0] == name {
				all = append(all, h[1])
			}
		}
		return all
	}
	return f.inputs.Expand(reference.Request{Header: values, Target: strings.Join(values(":path"), "")})
}
