package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// stored are the inputs that a request names in the store, in the order of their names.
type stored []storedInput

// storedInput is one of them. The one without a name may take the place of the request's body.
type storedInput struct {
	name, reference string
	input           *objects.Input // nil: another node fetches it
}

func newStored(references reference.Inputs) (s stored) {
	for _, name := range references.Names() {
		s = append(s, storedInput{name: name, reference: references[name]})
	}
	return s
}

// references are those of all inputs.
func (p *parked) references() reference.Inputs {
	all := reference.Inputs{}
	for _, one := range p.fetched() {
		all[one.name] = one.reference
	}
	return all
}

// fetched are all inputs that the request has in the store.
func (p *parked) fetched() (all []*storedInput) {
	for _, list := range []stored{p.stored, p.ahead} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// unnamed is the input without a name, nil if the request has none here.
func (s stored) unnamed() *objects.Input {
	if len(s) > 0 && s[0].name == "" {
		return s[0].input
	}
	return nil
}

// late is the name of an input that has not ended yet.
func (s stored) late() string {
	for _, one := range s {
		if one.input != nil && one.input.Ended().IsZero() {
			return one.name
		}
	}
	return ""
}

// fetch has the request's stored inputs brought here, if it has any.
func (in *Ingress) fetch(ctx context.Context, p *parked) {
	for _, one := range p.fetched() {
		if one.input == nil {
			one.input = in.config.Objects.Fetch(ctx, fetchRequest(p.id, p.function, one.name, one.reference))
		}
	}
	in.hints.drop(p.id)
}

func fetchRequest(id string, f *nodeapi.Function, name, reference string) objects.Request {
	return objects.Request{ID: id, Name: name, Function: f.GetName(), Store: f.GetStore(), Reference: reference,
		Limit: f.GetInputLimit()}
}

// release lets go of the inputs, once their spans are told.
func (in *Ingress) release(ctx context.Context, p *parked) {
	in.hints.drop(p.id) // one that came after the request
	for _, one := range p.fetched() {
		if one.input == nil {
			continue
		}
		one.input.Tell(ctx, tracer, tracing.Fetch, trace.SpanKindClient, one.reference, named(one.name)...)
		one.input.Release()
		one.input = nil
	}
}

// named is what a span says of an input's name.
func named(name string) []attribute.KeyValue {
	if name == "" {
		return nil
	}
	return []attribute.KeyValue{tracing.InputName.String(name)}
}

// sized waits until the size of the input without a name is known, which goes before its bytes.
func (in *Ingress) sized(ctx context.Context, p *parked) error {
	if p.stored.unnamed() == nil {
		return nil
	}
	before, cancel := in.waiting(ctx, p.deadline)
	defer cancel()
	_, err := p.stored.unnamed().Object(before)
	if isLate(before, err) {
		return source.Because(tooLate(p.function, "", true), before.Err())
	}
	return err
}

// publish makes the inputs appear in the sandbox, complete, as far as that has directories for
// them; files are the names of those that have. remove takes them out again.
func (in *Ingress) publish(ctx context.Context, p *parked, instance string) (files []string, remove func(), err error) {
	var dirs []*staging.Dir
	remove = func() {
		for _, dir := range dirs {
			_ = dir.Remove(p.id) // The directory is gone with its instance when this fails.
		}
	}
	for _, one := range p.stored {
		if one.input == nil {
			continue
		}
		dir, err := in.link(ctx, p, one, instance)
		if err != nil {
			remove()
			return nil, nil, err
		}
		if dir != nil {
			files, dirs = append(files, one.name), append(dirs, dir)
		}
	}
	return files, remove, nil
}

// link makes one input appear in the sandbox, and returns where; nil: it cannot.
func (in *Ingress) link(ctx context.Context, p *parked, one storedInput, instance string) (_ *staging.Dir, err error) {
	_, span := tracer.Start(ctx, tracing.Transfer,
		trace.WithAttributes(append(named(one.name), tracing.TransferKind.String(tracing.TransferLocal))...))
	defer func() { endSpan(span, err) }()
	of, known := in.config.Instances.Inputs(instance)
	if !known {
		return nil, undelivered{problem.InstanceGone()}
	}
	if of == nil {
		return nil, nil
	}
	before, cancel := in.waiting(ctx, p.deadline) // it may have to be copied
	defer cancel()
	dir, err := of.For(one.name)
	if err == nil && dir != nil {
		err = one.input.Link(before, dir, p.id)
	}
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, buffer.ErrNoFile):
		trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNoFile))
		return nil, nil
	case errors.Is(err, os.ErrClosed) || errors.Is(err, fs.ErrNotExist):
		return nil, undelivered{problem.InstanceGone()} // its directory went with it just now
	case errors.Is(before.Err(), context.DeadlineExceeded):
		return nil, source.Because(tooLate(p.function, one.name, true), err)
	}
	return nil, fmt.Errorf("giving the input to the sandbox: %w", err)
}

// failed is why the input that is the request's body could not be fetched, nil if it could or still
// may. A request that waits for its input cannot have one.
func (s stored) failed() error {
	input := s.unnamed()
	if input.Ended().IsZero() {
		return nil
	}
	return input.Wait(context.Background()) // at once: it has ended
}

// inputBody is a stored input that takes the place of a request's empty body. Its zero
// value leaves the request as it is.
type inputBody struct {
	object source.Object
	reader io.ReadCloser // nil: none
}

// open decides whether the request gets the input without a name as its body. One that has a body
// keeps it, and one that switches to another protocol must have none: they get the
// input as a file only.
func (s stored) open(ctx context.Context, r *http.Request) (b inputBody, err error) {
	input := s.unnamed()
	if input == nil || r.ContentLength != 0 || r.Header.Get("Upgrade") != "" {
		return b, nil
	}
	if b.object, err = input.Object(ctx); err != nil {
		return b, err
	}
	b.reader, err = input.NewReader(ctx)
	return b, err
}

func (b inputBody) attach(out *http.Request) {
	if b.reader == nil {
		return
	}
	out.Body, out.ContentLength = b.reader, b.object.Size
	if b.object.Size == 0 {
		out.Body = http.NoBody
	}
	if out.Header.Get("Content-Type") == "" && b.object.ContentType != "" {
		out.Header.Set("Content-Type", b.object.ContentType)
	}
}

func (b inputBody) close() {
	if b.reader != nil {
		_ = b.reader.Close() // it was only read from
	}
}
