package source

import (
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// The schemes of references.
const (
	SchemeS3    = reference.S3
	SchemeRedis = reference.Redis
	SchemeHTTP  = reference.HTTP
	SchemeHTTPS = reference.HTTPS
)

// Reference names one object in a store.
type Reference = reference.Reference

// ParseReference reads a reference. What it refuses is a problem of status 400.
func ParseReference(s string) (Reference, error) {
	ref, err := reference.Parse(s)
	if err != nil {
		return Reference{}, problem.New(http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed,
			filterapi.AnnotationInput, "the input reference is malformed: "+err.Error())
	}
	return ref, nil
}
