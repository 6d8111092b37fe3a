package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"

	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// While Kubernetes updates a daemon, a node has two: the new one takes the sockets over from
// the old one, which then ends the requests that it has. They share directories.

// buffers are where a daemon has its inputs: in the first that no other process has.
var buffers = []string{"buffer", "buffer-2"}

// openBuffer opens the first buffer that is free, and removes what a killed process left in
// the others. taken tells that another daemon of the node has one.
func (c config) openBuffer() (b *buffer.Buffer, taken bool, err error) {
	if c.platform != platformKubernetes {
		b, err := buffer.Open(c.state(buffers[0]), c.bufferLimit)
		return b, false, err
	}
	for _, name := range buffers {
		other, err := buffer.Open(c.state(name), c.bufferLimit)
		switch {
		case errors.Is(err, buffer.ErrInUse):
			taken = true
		case err != nil:
			return nil, false, errors.Join(err, closeBuffer(b))
		case b == nil:
			b = other
		default:
			if err := other.Close(); err != nil {
				return nil, false, errors.Join(err, b.Close())
			}
		}
	}
	if b == nil {
		return nil, false, buffer.ErrInUse
	}
	return b, taken, nil
}

func closeBuffer(b *buffer.Buffer) error {
	if b == nil {
		return nil
	}
	return b.Close()
}

// process is a name that no other daemon of the node has, empty where there is never a
// second.
func (c config) process() string {
	if c.platform != platformKubernetes {
		return ""
	}
	return newProcess()
}

func newProcess() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// kept also puts the listener where at says.
func kept(at *net.Listener, listen serve.Listen) serve.Listen {
	return func() (l net.Listener, err error) {
		l, err = listen()
		*at = l
		return l, err
	}
}

// leave stops the daemon when it is asked to. One that another has taken over from ends its
// requests first, for which it needs all that it has.
func leave(asked, ctx context.Context, stop func(), requests net.Listener, in *ingress.Ingress) {
	defer stop()
	select {
	case <-asked.Done():
	case <-ctx.Done(): // something else has failed
		return
	}
	if requests == nil || !serve.TakenOver(requests) {
		return
	}
	drain, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	in.Drain(drain)
}
