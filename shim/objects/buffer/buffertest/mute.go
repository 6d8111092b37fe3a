package buffertest

import (
	"context"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// Mute is a medium that takes bytes, and from which a read returns with its context only.
type Mute struct{}

// Create implements buffer.Medium.
func (Mute) Create(string) (buffer.Content, error) { return muteContent{}, nil }

// Close implements buffer.Medium.
func (Mute) Close() error { return nil }

type muteContent struct{}

func (muteContent) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (muteContent) Resize(int64) error                     { return nil }
func (muteContent) Remove(freed func())                    { freed() }

func (muteContent) Open(ctx context.Context, _ int64) (io.ReadCloser, error) {
	return io.NopCloser(muteReader{ctx}), nil
}

type muteReader struct{ ctx context.Context }

func (r muteReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, context.Cause(r.ctx)
}
