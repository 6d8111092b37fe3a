// Package serve is how Headstart's programs take requests: sockets that nobody else may
// use, and servers that end with their context, within a bounded time and with nothing
// left running.
package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// headTimeout bounds how long a caller may take for a request's headers.
	headTimeout = 10 * time.Second
	// headLimit bounds a request's headers, in bytes: twice what the gateway takes from
	// its clients, since it adds some.
	headLimit = 64 << 10
	// idleTimeout closes connections that nobody uses. It is longer than the clients of Headstart keep
	// theirs, so that none is closed under a request.
	idleTimeout = 3 * time.Minute
	// gatewayIdle is that of gateways, which keep an idle connection for an hour unless they are told
	// otherwise.
	gatewayIdle = 65 * time.Minute
	// scrapeTimeout bounds a scrape of metrics, of which a caller may read nothing.
	scrapeTimeout = 30 * time.Second
	// streamsMost is how many calls a connection of gRPC may have under way: a node has some streams,
	// and a gateway some reports.
	streamsMost = 256
	// streamWindow is how much of a body that nobody reads a stream of HTTP/2 may bring, in
	// bytes: as much as the gateway holds of it.
	streamWindow = 256 << 10
)

// Server serves one listener, to the end of both.
type Server func(net.Listener) error

// Go listens at once and serves as one of g. When it cannot listen, g fails, so that
// its other servers end and its Wait says why.
func Go(g *errgroup.Group, listen Listen, serve Server) {
	l, err := listen()
	g.Go(func() error {
		if err != nil {
			return err
		}
		return serve(l)
	})
}

// H2C lets a server of HTTP also take HTTP/2 without TLS, from callers that begin with it.
func H2C(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow}
}

// ForGateways is for servers whose clients are gateways.
func ForGateways(s *http.Server) { s.IdleTimeout = gatewayIdle }

// NewGRPC returns a server with the limits of all, and with these options.
func NewGRPC(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(streamsMost),
		grpc.MaxHeaderListSize(headLimit),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
	}, options...)...)
}

// HTTP serves h until ctx ends. Requests under way, those on hijacked connections among
// them, then get grace to end by themselves. After that their contexts end, their
// connections are closed, and h is waited for.
func HTTP(ctx context.Context, h http.Handler, grace time.Duration, log *slog.Logger, options ...func(*http.Server)) Server {
	return func(l net.Listener) error {
		life, cut := context.WithCancel(context.WithoutCancel(ctx))
		defer cut()
		// Held for reading by each request. A WaitGroup would not do: it must not grow
		// from zero while somebody waits.
		var running sync.RWMutex
		var kept *keeping // for most listeners, nothing is
		if u, is := l.(*unixListener); is {
			kept = u.keeping
		}
		s := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				running.RLock()
				defer running.RUnlock()
				if kept.isLeft() {
					w.Header().Set("Connection", "close")
				}
				h.ServeHTTP(w, r)
			}),
			BaseContext:       func(net.Listener) context.Context { return life },
			ConnContext:       WithConnection,
			ReadHeaderTimeout: headTimeout,
			MaxHeaderBytes:    headLimit,
			IdleTimeout:       idleTimeout,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
		for _, set := range options {
			set(s)
		}
		if kept != nil {
			s.ConnState = heard
		}
		return untilDone(ctx, func() error { return s.Serve(l) }, func() {
			limit, cancel := context.WithTimeout(life, grace)
			defer cancel()
			HandOver(limit, l)
			_ = s.Shutdown(limit) // it says whether requests are late, as the wait below does
			ended := make(chan struct{})
			go func() {
				running.Lock()
				defer running.Unlock()
				close(ended)
			}()
			select {
			case <-ended:
			case <-limit.Done():
			}
			cut()
			_ = s.Close() // of connections that nobody needs any more
			<-ended
		})
	}
}

// Linger gives a client time to read an answer before its connection is closed (RFC 9112, section 9.6). One that
// still sends its body finds the connection broken otherwise, and may take that for all there is.
func Linger(w http.ResponseWriter) {
	// The server does so for a body that exceeds its limit, and for others only where the connection could have gone on.
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("-")), 0).Read(make([]byte, 1))
}

// GRPC serves s until ctx ends, which ends all calls.
func GRPC(ctx context.Context, s *grpc.Server) Server {
	return func(l net.Listener) error {
		return untilDone(ctx, func() error { return s.Serve(l) }, s.Stop)
	}
}

// untilDone serves until ctx ends, then stops and waits.
func untilDone(ctx context.Context, serve func() error, stop func()) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		stop()
		<-served
		return nil
	}
}

// Bounded runs a step of a program's end: one that ctx's end must not cut short, nor
// may it take longer than limit.
func Bounded(ctx context.Context, limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return step(ctx)
}

// Metrics answers GET /metrics, with exemplars for those who ask for OpenMetrics.
func Metrics(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, c := time.Now().Add(scrapeTimeout), http.NewResponseController(w)
		_, _ = c.SetReadDeadline(end), c.SetWriteDeadline(end) // a test's recorder has none
		mux.ServeHTTP(w, r)
	})
}
