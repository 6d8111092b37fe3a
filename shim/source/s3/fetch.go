package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/source"
)

// fetch is one object on its way.
type fetch struct {
	*Source
	ref   source.Reference
	begin func(source.Object) (io.WriterAt, error)
	group *errgroup.Group

	// Set by the first part, before there are others.
	object source.Object
	writer io.WriterAt

	next atomic.Int64 // where the next part to claim begins
}

// first reads the first part, which finds out how many there are, and then its share
// of the others.
func (f *fetch) first(ctx context.Context) error {
	if err := f.part(ctx, 0); err != nil {
		return err
	}
	return f.others(ctx)
}

// others claims parts in order, so that the prefix grows early, until none is left.
func (f *fetch) others(ctx context.Context) error {
	for {
		at := f.next.Add(Part) - Part
		if at >= f.object.Size {
			return nil
		}
		if err := f.part(ctx, at); err != nil {
			return err
		}
	}
}

// part reads the part that begins at at. When an attempt breaks off, the next one
// goes on where it ended.
func (f *fetch) part(ctx context.Context, at int64) error {
	begun, end := time.Now(), at+Part
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, longestPause
	for try := 1; ; try++ {
		n, err := f.attempt(ctx, at, end)
		at += n
		var again *brokenError
		if !errors.As(err, &again) {
			return err
		}
		if try == tries || time.Since(begun) > patience {
			return again.final
		}
		select {
		case <-ctx.Done():
			return source.Ended(ctx, f.store, f.ref)
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// attempt reads from at up to the end of the part or of the object, and returns how
// many bytes it has written. A brokenError is worth another attempt.
func (f *fetch) attempt(ctx context.Context, at, end int64) (int64, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return 0, source.Ended(ctx, f.store, f.ref)
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer watchdog.Stop()

	object, body, err := f.open(watched, at, end)
	if err != nil {
		return 0, f.failure(ctx, watched, err)
	}
	defer body.Close() // What was needed of it has been read.
	watchdog.Stop()
	if f.writer == nil {
		if err := f.start(ctx, object); err != nil {
			return 0, err
		}
	} else if object.Version != f.object.Version || object.Size != f.object.Size {
		return 0, source.Changed(f.store, f.ref)
	}

	var written int64
	want := min(end, f.object.Size) - at
	buf := make([]byte, min(block, want))
	for written < want {
		watchdog.Reset(stall)
		n, err := body.Read(buf[:min(int64(len(buf)), want-written)])
		watchdog.Stop()
		if n > 0 {
			if _, err := f.writer.WriteAt(buf[:n], at+written); err != nil {
				return written, err
			}
			written += int64(n)
		}
		if err != nil && written < want {
			return written, f.failure(ctx, watched, fmt.Errorf("after %d of %d bytes: %w", written, want, err))
		}
	}
	return written, nil
}

// start tells the caller of the object and begins to read its other parts.
func (f *fetch) start(ctx context.Context, object source.Object) error {
	writer, err := f.begin(object)
	if err != nil {
		return err
	}
	f.object, f.writer = object, writer
	f.next.Store(Part)
	parts := (object.Size + Part - 1) / Part
	for range min(parts, connections) - 1 {
		f.group.Go(func() error { return f.others(ctx) })
	}
	return nil
}

// open asks the store for the bytes from at up to end.
func (f *fetch) open(ctx context.Context, at, end int64) (source.Object, io.ReadCloser, error) {
	in := &sdk.GetObjectInput{Bucket: &f.ref.Bucket, Key: &f.ref.Key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", at, end-1))}
	if f.writer != nil {
		in.IfMatch = &f.object.Version
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", at, min(end, f.object.Size)-1))
	}
	out, err := f.client.GetObject(ctx, in)
	if err != nil {
		if f.writer == nil && status(err) == statusNoRange {
			return f.empty(ctx)
		}
		return source.Object{}, nil, err
	}
	size, err := sizeOf(out, at, end)
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errors.New("it gives no entity tag")
	}
	if err != nil {
		// Closing cannot make it worse.
		_ = out.Body.Close()
		return source.Object{}, nil, &uselessError{err}
	}
	return source.Object{Size: size, ContentType: aws.ToString(out.ContentType), Version: *out.ETag}, out.Body, nil
}

// empty describes an object of no bytes: it has no first range, so the store's answer
// to the question for one tells nothing else.
func (f *fetch) empty(ctx context.Context) (source.Object, io.ReadCloser, error) {
	out, err := f.client.HeadObject(ctx, &sdk.HeadObjectInput{Bucket: &f.ref.Bucket, Key: &f.ref.Key})
	if err != nil {
		return source.Object{}, nil, err
	}
	if aws.ToInt64(out.ContentLength) != 0 {
		return source.Object{}, nil, source.Changed(f.store, f.ref)
	}
	return source.Object{ContentType: aws.ToString(out.ContentType), Version: aws.ToString(out.ETag)}, io.NopCloser(strings.NewReader("")), nil
}

// sizeOf returns the whole object's size, if the answer is the range that was asked for.
func sizeOf(out *sdk.GetObjectOutput, at, end int64) (int64, error) {
	if out.ContentRange == nil {
		// The whole object. Some stores answer so when the range covers it.
		if out.ContentLength == nil || at != 0 || *out.ContentLength < 0 || *out.ContentLength > end {
			return 0, errors.New("it does not serve ranges")
		}
		return *out.ContentLength, nil
	}
	var from, to, size int64
	if _, err := fmt.Sscanf(*out.ContentRange, "bytes %d-%d/%d", &from, &to, &size); err != nil {
		return 0, fmt.Errorf("content range %.60q", *out.ContentRange)
	}
	if size < 0 || from != at || to != min(end, size)-1 {
		return 0, fmt.Errorf("it answers range %d-%d with %.60q", at, end-1, *out.ContentRange)
	}
	return size, nil
}
