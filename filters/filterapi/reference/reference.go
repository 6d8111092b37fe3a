package reference

import (
	"errors"
	"fmt"
	"strings"
)

// Reference names one object in a store. Its zero value names none.
type Reference struct {
	Scheme string
	// Bucket is what the operator lists: a bucket, a keyspace of Redis, or a host with its port.
	Bucket string
	// Key is the rest: with Redis what follows "keyspace:" in the key, with HTTP what
	// follows the path's first slash.
	Key string
}

// String returns the form that Parse reads.
func (r Reference) String() string { return r.Scheme + "://" + r.Bucket + "/" + r.Key }

// Parse reads a reference. The bucket ends at the first slash after the scheme. The key stands
// as it is: nothing in it is escaped, and a "?" or "#" belongs to it.
func Parse(s string) (Reference, error) {
	k, rest, ok := cutKind(s)
	if !ok {
		return Reference{}, errors.New("it " + OtherStore())
	}
	bucket, key, ok := strings.Cut(rest, "/")
	if !ok {
		return Reference{}, errors.New("it " + NoKey)
	}
	if problem := k.Bucket.Problem(bucket); problem != "" {
		return Reference{}, fmt.Errorf("bucket %.63q %s", bucket, problem)
	}
	if problem := keyProblem(key); problem != "" {
		return Reference{}, errors.New("the key " + problem)
	}
	return Reference{Scheme: k.Scheme, Bucket: bucket, Key: key}, nil
}
