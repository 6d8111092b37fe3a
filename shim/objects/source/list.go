package source

import (
	"context"
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Lister is a Source whose store has lists of objects.
type Lister interface {
	Source
	// List calls each for every object whose key begins with the prefix's, in any order, with what follows in
	// the key and what Fetch will be told of the object but for its content type. It ends with the error of each,
	// or with one of Fetch's. The prefix's key is empty or ends with a slash. The limit of objects is up to each.
	List(ctx context.Context, prefix Reference, each func(name string, o Object) error) error
}

// NoLists is a store that has none.
func NoLists(store string) *problem.Problem {
	return problem.New(http.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationVolumes,
		fmt.Sprintf("store %q has no lists of objects; volumes are read from stores of the kind s3", store))
}
