package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// While Kubernetes updates a daemon, a node has two: the new one takes the sockets over from
// the old one, which then ends the requests that it has. They share directories.

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
