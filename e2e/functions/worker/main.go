// Command worker is a sample function that stands for work without doing any: a request
// holds one of a few workers for 3 to 5 ms, as the function of FaaSt's evaluation takes
// (section III.B), and waits in a queue until one is free. As it only waits, two cores can
// stand for many.
//
// Its answers report its load in ORCA's header, for whoever balances by it.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

// workers is how many requests it works on at a time, unless WORKERS says otherwise.
const workers = 4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		slog.Error("worker ends", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends and the requests in flight are answered.
func run(ctx context.Context, env service.Env) error {
	n, err := env.Positive("WORKERS", workers)
	if err != nil {
		return err
	}
	p, err := newPool(n)
	if err != nil {
		return err
	}
	defer p.close()
	return service.Run(ctx, env, "WORKER_STARTUP", newHandler(p, env("WORKER_NAME")))
}
