// Package ranged reads objects by parts in parallel, whatever store they are in: with
// retries, and going on where a connection broke. A store is an adapter that opens parts.
package ranged

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
)

// Design point: a link between edge and cloud with 25-50 ms of round trip and
// 100-500 Mbit/s. It holds up to 3 MB in flight, which one connection reaches only after
// eight doublings of its congestion window from 14 KB: 400 ms, longer than many inputs
// take as a whole.
const (
	// Connections is how many parts of one object are read at the same time. Eight windows
	// fill the link three doublings earlier than one, and a lost packet halves an eighth of
	// the rate. An object of fewer parts uses as many as it has parts, and the first one
	// alone until the store has told the size. Each object has one connection to itself, the
	// others are of all objects together, and namespaces share them fairly: three times eight
	// that begin at once lose so many packets in the link's queue that half of its rate is left.
	Connections = 8

	// Slots is how many parts of all objects of a store are read at the same time, of which one
	// namespace has 64. It bounds sockets and buffers: what waits for a slot holds neither. While
	// several namespaces fetch, each has no more than Connections of them: a link is shared by
	// connections, and so many fill it.
	Slots = 80
	// Helpers is how many of the slots are for connections besides an object's own, of which one
	// namespace has Connections but one. Objects that have no connection yet come first.
	Helpers = 9

	// block is the size of the buffer between body and writer, in bytes: what a socket
	// has ready at once on this link.
	block = 128 << 10

	// Stall is how long the store may send nothing, answer or bytes. It outlasts the
	// hiccups of a mobile link (a handover takes seconds), not a dead peer.
	Stall = 10 * time.Second

	// Away is how long a part is asked for again and again while the store refuses or breaks
	// connections, or answers that it cannot now. A store that restarts is back in seconds, most
	// of which a cold request waits for its sandbox anyway; the callers of a store that is gone
	// shall not wait much longer than for one that says nothing.
	Away = 10 * time.Second

	// Stalls is how often a part is asked for although nothing came of it for Stall: by another
	// connection the store may answer. It goes beside Away; Patience bounds both.
	Stalls   = 3
	Patience = Away + Stalls*Stall

	// Breaks is how often a part may break off after some of it has come.
	Breaks = 4

	// firstPause and longestPause bound the wait between two tries, which doubles, and is up to
	// a half shorter or longer at random. The longest is what a store that is back may be
	// found late.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second

	// Idle is how long an unused connection is kept for the next object: the activations
	// of one workflow, not those of another hour.
	Idle = 90 * time.Second
	// Continue is how long a body that may be refused waits for a store that does not say that it takes it: that of Go's
	// own transport.
	Continue = time.Second
	// MaxHeader bounds an HTTP answer's header, in bytes: the client reads it into memory. S3
	// allows 2 KB of user metadata.
	MaxHeader = 64 << 10

	// A kept connection of which the other side knows nothing any more, as its machine died or
	// something on the way has forgotten it, is found by these probes within Stall. Otherwise one
	// fetch after the other would wait for Stall to find it out, until they all are Idle.
	probeAfter = 4 * time.Second
	probeEvery = 3 * time.Second
	probesMost = 2
)

// Dialer returns what connects to a store's host.
func Dialer(allowed address.Rule) *net.Dialer {
	return &net.Dialer{Timeout: Stall, ControlContext: allowed.Control,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probesMost}}
}

// Transport returns the connections to a store that speaks HTTP. It has no proxy from the
// environment, and HTTP/1.1: HTTP/2 would put all parts on one connection with one congestion window.
// Of allowed the host is the one that is asked.
func Transport(allowed address.Rule) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			rule := allowed
			var err error
			if rule.Host, _, err = net.SplitHostPort(to); err != nil {
				return nil, err
			}
			return Dialer(rule).DialContext(ctx, network, to)
		},
		TLSHandshakeTimeout:    Stall,
		ExpectContinueTimeout:  Continue,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost:    Slots,
		IdleConnTimeout:        Idle,
		MaxResponseHeaderBytes: MaxHeader,
		DisableCompression:     true,
	}
}

// Object is one object of a store. Open is called by several goroutines at once.
type Object interface {
	// Open asks the store for the bytes from at up to end, or to the object's end if that
	// comes first. known is what the first answer said of the object, nil before it: it is
	// for the store to refuse another version.
	//
	// A *problem.Problem among its errors ends the fetch, and so does a *source.Unchanged, which only
	// the first answer may be. One of Again has the part tried again, and so has any other, which
	// counts as a broken connection.
	Open(ctx context.Context, at, end int64, known *source.Object) (Answer, error)
}

// Answer is what a store sends of an object.
type Answer struct {
	Object source.Object
	// Body is closed by the reader. An end before the last byte that was asked for is a
	// broken connection, but for an object of unknown size, whose end it is.
	Body io.ReadCloser
	// From is where Body begins, at most at what was asked for.
	From int64
	// Whole says that the store has no parts of this object: Body goes on to its end. An
	// object of unknown size (-1) is always whole.
	Whole bool
}

// Again is an error that may pass: the part is asked for again, and the fetch fails with
// final when that was in vain.
func Again(final error) error { return &againError{final} }

type againError struct{ final error }

func (e *againError) Error() string { return e.final.Error() }

// Fetcher fetches the objects of one store.
type Fetcher struct {
	store string
	part  int64
	// places has one for each connection; an object's own comes before the others.
	places *fair.Places
}

// New returns a fetcher for the store of that name, which asks for at most part bytes at
// once.
func New(store string, part int64) *Fetcher {
	return &Fetcher{store: store, part: part, places: fair.NewEqualPlaces(Slots, Connections, Helpers)}
}

// Fetch reads an object as source.Source says.
func (f *Fetcher) Fetch(ctx context.Context, ref source.Reference, from Object,
	begin func(source.Object) (io.WriterAt, error)) error {
	defer f.places.Attend(ctx)()
	group, ctx := errgroup.WithContext(ctx)
	one := &fetch{Fetcher: f, ref: ref, from: from, begin: begin, group: group, ctx: ctx, parts: parts{size: f.part}}
	one.claimed, one.all = context.WithCancel(ctx)
	defer one.all()
	group.Go(func() error { return one.first(ctx) })
	return group.Wait()
}

// Ask bounds a question to the store about an object, as the one for a part is bounded, and
// makes problems of its errors. It is not asked again.
func (f *Fetcher) Ask(ctx context.Context, ref source.Reference, ask func(ctx context.Context) error) error {
	watched, cancel := context.WithTimeoutCause(ctx, Stall, errStalled)
	defer cancel()
	if err := ask(watched); err != nil {
		return final(f.failure(ctx, watched, ref, err))
	}
	return nil
}
