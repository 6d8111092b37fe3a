package call

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// references are the stored inputs of a call: those that the caller names, or else what the
// function's templates make of the call, as the gateway's filter does. Whether the
// function's store allows them is seen when they are fetched, as of all references.
func references(target *url.URL, h http.Header, f *nodeapi.Function) (reference.Inputs, error) {
	said, templates := reference.Inputs{}, f.Templates()
	for _, header := range []string{filterapi.HeaderInput, filterapi.HeaderInputs} {
		if len(h.Values(header)) > 1 {
			return nil, source.Misnamed("header "+header, "is given more than once")
		}
	}
	if ref := h.Values(filterapi.HeaderInput); len(ref) == 1 {
		said[""], templates = ref[0], templates.Named()
	}
	if list := h.Values(filterapi.HeaderInputs); len(list) == 1 {
		named, err := source.ParseNamed(list[0])
		if err != nil {
			return nil, err
		}
		maps.Copy(said, named)
		templates = templates.Unnamed()
	}
	if err := checkSaid(said, f); err != nil {
		return nil, err
	}
	made, err := source.Name(templates, target.RequestURI(), h)
	maps.Copy(said, made)
	return said, err
}

// checkSaid refuses a caller's references that the function takes not, or that are not well-formed.
func checkSaid(said reference.Inputs, f *nodeapi.Function) error {
	taken := f.Taken(said)
	for _, name := range said.Names() {
		header := filterapi.HeaderInputs
		if name == "" {
			header = filterapi.HeaderInput
		}
		if _, is := taken[name]; !is {
			return problem.New(http.StatusBadRequest, "InputNotTaken", header,
				"the function takes no such stored input: it has no annotation "+filterapi.InputKey(name))
		}
		if _, err := source.ParseReference(said[name]); err != nil {
			p := *problem.Of(err)
			p.Field = header
			return &p
		}
	}
	return nil
}
