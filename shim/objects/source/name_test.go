package source_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference/referencetest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// The daemon makes the same of a request as the gateway's filter, whose test has the same cases.
func TestNameIsTheFilters(t *testing.T) {
	for _, c := range referencetest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			header := http.Header{}
			for _, h := range c.Header {
				header.Add(h[0], h[1])
			}
			refs, err := source.Name(reference.Inputs{"": c.Template}, c.Target, header)
			ref := refs[""]
			if c.Field == "" {
				if ref != c.Want || err != nil {
					t.Errorf("%q, %v; want %q", ref, err, c.Want)
				}
				return
			}
			p := problem.Of(err)
			if p.Status != http.StatusBadRequest || p.Title != "InputReferenceMalformed" || p.Field != c.Field || !strings.HasPrefix(p.Detail, c.Field+" ") || !strings.Contains(p.Detail, c.Says) {
				t.Errorf("%q, %+v; want a refusal of %s: %s", ref, p, c.Field, c.Says)
			}
		})
	}
}
