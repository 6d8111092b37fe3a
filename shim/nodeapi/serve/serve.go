// Package serve is how Headstart's programs take requests: sockets that nobody else may
// use, and servers that end with their context, within a bounded time and with nothing
// left running.
package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
)

const (
	// headTimeout bounds how long a caller may take for a request's headers.
	headTimeout = 10 * time.Second
	// headLimit bounds a request's headers, in bytes: twice what the gateway takes from
	// its clients, since it adds some.
	headLimit = 64 << 10
)

// HTTP serves h on l until ctx ends. Requests under way, those on hijacked connections
// among them, get grace to end by themselves. Then their contexts end and their
// connections are closed, and HTTP waits for h to return from them.
func HTTP(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	// Held for reading by each request. A WaitGroup would not do: it must not grow from
	// zero while somebody waits.
	var running sync.RWMutex
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.RLock()
			defer running.RUnlock()
			h.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return life },
		ReadHeaderTimeout: headTimeout,
		MaxHeaderBytes:    headLimit,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return untilDone(ctx, func() error { return s.Serve(l) }, func() {
		limit, cancel := context.WithTimeout(life, grace)
		defer cancel()
		_ = s.Shutdown(limit) // that some requests are late is what follows
		ended := make(chan struct{})
		go func() {
			running.Lock()
			running.Unlock() //nolint:staticcheck // It was locked to wait.
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

// GRPC serves s on l until ctx ends, which ends all calls.
func GRPC(ctx context.Context, l net.Listener, s *grpc.Server) error {
	return untilDone(ctx, func() error { return s.Serve(l) }, s.Stop)
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

// Metrics answers GET /metrics.
func Metrics(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	return mux
}
