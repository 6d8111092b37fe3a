package ranged

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Source reads the objects of one store that its operator allows. It implements source.Source.
type Source struct {
	*Fetcher
	// Schemes and Buckets are the only ones that references may name.
	Schemes, Buckets []string
	// Object returns an object that is allowed so far, or a *problem.Problem. held is as in source.Source.
	Object func(ref source.Reference, held string) (Object, error)
}

// Allowed returns the object of a reference, or the problem of one that the operator does not allow.
func (s Source) Allowed(ref source.Reference, held string) (Object, error) {
	if !slices.Contains(s.Schemes, ref.Scheme) {
		return nil, source.OtherScheme(s.store, ref, strings.Join(s.Schemes, ":// or ")+"://")
	}
	if !slices.Contains(s.Buckets, ref.Bucket) {
		return nil, source.NotAllowed(s.store, ref)
	}
	return s.Object(ref, held)
}

// Fetch implements source.Source.
func (s Source) Fetch(ctx context.Context, ref source.Reference, held string,
	begin func(source.Object) (io.WriterAt, error),
) error {
	o, err := s.Allowed(ref, held)
	if err != nil {
		return err
	}
	return s.Fetcher.Fetch(ctx, ref, o, begin)
}

// SizeIn returns the size of the whole object from an answer's Content-Range (RFC 9110, section
// 14.4), which has to be the range from at up to end, or to the object's end.
func SizeIn(contentRange string, at, end int64) (size int64, err error) {
	_, said, _ := strings.Cut(contentRange, "/")
	if size, err = strconv.ParseInt(said, 10, 64); err != nil {
		return 0, fmt.Errorf("content range %.60q", contentRange)
	}
	if size < 0 || contentRange != fmt.Sprintf("bytes %d-%d/%d", at, min(end, size)-1, size) {
		return 0, fmt.Errorf("it answers range %d-%d with %.60q", at, end-1, contentRange)
	}
	return size, nil
}
