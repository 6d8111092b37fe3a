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
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

// everySecond looks at one frame a second of a camera with 25.
const everySecond = 25

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		slog.Error("fire ends", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends and the requests in flight are answered.
func run(ctx context.Context, env service.Env) error {
	every, err := env.Positive("FIRE_EVERY", everySecond)
	if err != nil {
		return err
	}
	return service.Run(ctx, env, "FIRE_STARTUP", newHandler(input.New(env), every))
}
