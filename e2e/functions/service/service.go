// Package service is what the sample functions have in common: they serve by Knative's
// contract, HTTP on $PORT, ready when they accept connections, SIGTERM to end.
package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	// defaultPort is Knative's.
	defaultPort = 8080
	// RequestTimeout is Knative's default for a whole request.
	RequestTimeout = 300 * time.Second
	// headerTimeout ends connections that never say what they want.
	headerTimeout = 10 * time.Second
	// drainTimeout is somewhat less than the 30 s that Kubernetes waits after SIGTERM.
	drainTimeout = 25 * time.Second
)

// Env looks up a variable of the environment, like os.Getenv.
type Env func(name string) string

// Run waits for as long as the variable startup says, then serves until ctx ends and the
// requests in flight are answered. The wait stands for what a small program does not have:
// an interpreter's start, and libraries and models that are loaded. Truffle's evaluation
// adds to cold starts the same way (section VI, figure 11).
func Run(ctx context.Context, env Env, startup string, handler http.Handler) error {
	port, err := env.Positive("PORT", defaultPort)
	if err != nil {
		return err
	}
	if err := wait(ctx, startup, env(startup)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return Serve(ctx, listener, handler)
}

// Serve serves until ctx ends and the requests in flight are answered.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       RequestTimeout,
		WriteTimeout:      RequestTimeout,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	<-ended // always http.ErrServerClosed
	if err != nil {
		return fmt.Errorf("waiting for requests in flight: %w", err)
	}
	return nil
}

func wait(ctx context.Context, name, value string) error {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return nil
}

// Positive is a variable's positive number, or otherwise if it is not set.
func (env Env) Positive(name string, otherwise int) (int, error) {
	value := env(name)
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: %q is not a positive number", name, value)
	}
	return n, nil
}
