// Command fire is a sample function after the scenario of Truffle (section II.B): it looks
// for fire in a video of a surveillance camera, Motion JPEG, and answers with the regions
// that have fire's colour. It takes its input from the request's body, from a file that
// Headstart has placed, or else fetches it from the object store like any function would.
//
// It knows nothing of Headstart but one header, and serves by Knative's contract: HTTP on
// $PORT, ready when it accepts connections, SIGTERM to end.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/fire/input"
)

const (
	// defaultPort is Knative's.
	defaultPort = 8080
	inputDir    = "/headstart/input"
	// inputLimit bounds the memory of a request: about a quarter of an hour of video.
	inputLimit = 1 << 30
	// everySecond looks at one frame a second of a camera with 25.
	everySecond = 25
	// headerTimeout ends connections that never say what they want.
	headerTimeout = 10 * time.Second
	// drainTimeout is somewhat less than the 30 s that Kubernetes waits after SIGTERM.
	drainTimeout = 25 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		slog.Error("fire ends", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends and the requests in flight are answered.
func run(ctx context.Context, env func(string) string) error {
	every, err := positive(env("FIRE_EVERY"), everySecond)
	if err != nil {
		return fmt.Errorf("FIRE_EVERY: %w", err)
	}
	port, err := positive(env("PORT"), defaultPort)
	if err != nil {
		return fmt.Errorf("PORT: %w", err)
	}
	if err := startUp(ctx, env("FIRE_STARTUP")); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	reader := &input.Reader{Dir: inputDir, Limit: inputLimit, Objects: storeOf(env)}
	return serve(ctx, listener, newHandler(reader, every))
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
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

// startUp stands for what this small program does not have: an interpreter's start, and
// libraries and models that are loaded. Truffle's evaluation adds to cold starts the same
// way (section VI, figure 11).
func startUp(ctx context.Context, value string) error {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("FIRE_STARTUP: %w", err)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return nil
}

func positive(value string, otherwise int) (int, error) {
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not a positive number", value)
	}
	return n, nil
}

// storeOf makes the store on the first call: a function whose input is brought to it does
// not spend its start on a client.
func storeOf(env func(string) string) func() (input.Objects, error) {
	return sync.OnceValues(func() (input.Objects, error) {
		endpoint, region := env("S3_ENDPOINT"), env("S3_REGION")
		if endpoint == "" || region == "" {
			return nil, errors.New("S3_ENDPOINT or S3_REGION is not set, and a request needs the store")
		}
		return input.NewS3(endpoint, region, env("S3_ACCESS_KEY_ID"), env("S3_SECRET_ACCESS_KEY")), nil
	})
}
