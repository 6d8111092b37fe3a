package peers

import (
	"context"
	"errors"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// intake is an object that is being fetched, from one or more peers and then perhaps from the store.
type intake struct {
	key    objects.Key
	begin  source.Begin
	begun  bool
	object source.Object
	exact  bool // peers may only have this object
	w      io.WriterAt
	at     int64  // what is before it has been written
	room   []byte // for a block and its digest
	fatal  error  // of begin or w: nobody else can help
}

// open begins with the object, or goes on with it if it is the same.
func (in *intake) open(o source.Object) error {
	if (in.begun || in.exact) && (o.Version != in.object.Version || o.Size != in.object.Size) {
		return errChanged
	}
	if in.begun {
		return nil
	}
	in.begun, in.object = true, o
	in.w, in.fatal = in.begin(o)
	return in.fatal
}

// finish has store bring what peers have not brought.
func (in *intake) finish(ctx context.Context, store func(context.Context, source.Begin) error) error {
	err := store(ctx, in.rest)
	if _, same := errors.AsType[*source.Unchanged](err); same && in.begun {
		return in.changed() // back to what is held, after the beginning of another version
	}
	return err
}

// rest is begin for the store: bytes that have been written are not written again.
func (in *intake) rest(o source.Object) (io.WriterAt, error) {
	if !in.begun {
		return in.begin(o)
	}
	if o.Version != in.object.Version || o.Size != in.object.Size {
		return nil, in.changed()
	}
	return after{in.w, in.at}, nil
}

// changed says that the store has another version than the one whose bytes have come so far.
func (in *intake) changed() error {
	ref, _ := source.ParseReference(in.key.Reference) // by which it is fetched
	return source.Because(source.Changed(in.key.Store, ref), errChanged)
}

// after writes what is at an offset or behind it.
type after struct {
	w  io.WriterAt
	at int64
}

// WriteAt implements io.WriterAt.
func (a after) WriteAt(p []byte, at int64) (int, error) {
	skip := min(max(a.at-at, 0), int64(len(p)))
	if skip == int64(len(p)) {
		return len(p), nil
	}
	n, err := a.w.WriteAt(p[skip:], at+skip)
	return int(skip) + n, err
}
