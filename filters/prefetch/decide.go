// Package prefetch is the filter that tells a node's daemon of a request's stored
// input while the request itself is still on its way: the hint of Smart Data Prefetch
// (Truffle, section 3). It looks at headers only and holds no request.
package prefetch

import (
	"errors"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// statusBadRequest is HTTP's. The package net/http would double the module's size.
const statusBadRequest = 400

// daemonAuthority is the authority of what the daemon is told. The daemon listens on a unix socket, so
// it names nothing; HTTP only wants one.
const daemonAuthority = "headstart-node"

// maxKnownBytes bounds the texts of the functions that a worker keeps read: some 5,000 of a usual size. With
// the next one it begins again, which costs each function one reading.
const maxKnownBytes = 1 << 20

// table has the functions that requests came for, by the text that the proxy has of each.
type table struct {
	hintCluster string
	// property is where the proxy has that text.
	property string
	// endpoint is where requests with an input are to go; empty where routes see to that.
	endpoint string

	known      map[string]function
	knownBytes int
}

// function is what the filter does for a function's requests. Its zero value is for a text that is none.
type function struct {
	name     string
	inputs   reference.Templates
	observed bool   // the inputs are only named
	endpoint string // the table's
}

func newTable(c *filterapi.Config) *table {
	t := &table{hintCluster: c.HintCluster, endpoint: c.IngressEndpoint, known: make(map[string]function)}
	of := "route_metadata"
	if t.endpoint != "" { // routes are not Headstart's
		of = "cluster_metadata"
	}
	t.property = strings.Join([]string{
		"xds", of, "filter_metadata", filterapi.MetadataNamespace, filterapi.MetadataPrefetch,
	}, "\x00")
	return t
}

// function returns what a text says. An error comes once for each text.
func (t *table) function(text string) (function, error) {
	if f, ok := t.known[text]; ok {
		return f, nil
	}
	if t.knownBytes += len(text); t.knownBytes > maxKnownBytes {
		clear(t.known)
		t.knownBytes = len(text)
	}
	f, err := t.read([]byte(text))
	t.known[text] = f
	return f, err
}

func (t *table) read(text []byte) (function, error) {
	f, err := filterapi.ParseFunction(text)
	if err != nil {
		return function{}, err
	}
	inputs, err := reference.ParseTemplates(f.Templates())
	if err != nil {
		return function{}, err
	}
	return function{name: f.Name, inputs: inputs, observed: f.IsObserved(), endpoint: t.endpoint}, nil
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
// request has an input. One that is only observed stays untouched.
func (f function) decide(headers [][2]string, newID func() string) decision {
	d := f.active(headers, newID)
	if !f.observed {
		return d
	}
	if d.tell == nil { // it names no input
		d.tell = f.message("")
	}
	d.tell[pathAt][1] = filterapi.ObservationPath
	return decision{tell: d.tell}
}

// active is the decision on a request that is not only observed.
func (f function) active(headers [][2]string, newID func() string) decision {
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
// pathAt is where a message has its path.
const pathAt = 1

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
