// Package source is the port to the stores that inputs are read from. Its adapters
// live one level below and pass the suite in sourcetest.
package source

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Source reads objects from one store. Its methods may be called at the same time. A Source may have a method
// Identity() string, which names its server: objects that another process kept of a Source with the same identity
// count as this one's.
type Source interface {
	// Fetch writes the object's bytes at their offsets, in any order and from several
	// goroutines at once, and returns when all of them are written and none is on its
	// way. Before the first byte it calls begin exactly once with what the store says
	// of the object, and writes to what begin returns.
	//
	// It ends within a bounded time even when ctx has no deadline: a store that stops
	// sending counts as failed. What the store or the reference has to answer for is a
	// *problem.Problem, which may wrap its cause; errors of begin and of the writer are
	// returned as they are. An object that changes while it is read fails with Changed,
	// or arrives whole in the version that begin was told; versions are never mixed.
	//
	// held is the version that the caller has, or is fetching: if the object still is of that version,
	// asked after the call has begun, Fetch ends with an *Unchanged and does not call begin. A store that
	// cannot tell sends the object. Empty: the caller has none.
	//
	// Of an object of unknown size (-1) the bytes come in order, and how many they were is
	// known when Fetch has returned.
	Fetch(ctx context.Context, ref Reference, held string, begin func(Object) (io.WriterAt, error)) error
}

// Object is what a store says of an object before its bytes. Nodes tell it each other as JSON.
type Object struct {
	Size        int64  `json:"size"` // bytes; -1 when the store does not know it beforehand
	ContentType string `json:"contentType,omitempty"`
	// Version is another one whenever the object is: an entity tag, for instance. A store
	// that has none gives each look at an object a new one, or leaves it empty: an empty
	// version is equal to none.
	Version string `json:"version"`
	// Fresh is how long the answer holds as the store says it: 0: until the store is asked again, below 0:
	// the object is not to be kept.
	Fresh time.Duration `json:"fresh,omitempty"`
	// Header is what a store with the S3 API says of the object besides: see s3.Header. nil: it is not known.
	Header http.Header `json:"header,omitempty"`
	// From is the node that has answered in place of the store; empty: the store itself.
	From string `json:"-"`
}

// Begin takes what is known of an object, and returns where its bytes go.
type Begin = func(Object) (io.WriterAt, error)

// Unchanged is how a Fetch ends if the object still is of the version that its caller holds. Fresh and From are as in
// Object, of this answer.
type Unchanged struct {
	Fresh time.Duration `json:"fresh,omitempty"`
	From  string        `json:"-"`
}

func (*Unchanged) Error() string { return "the object has not changed" }
