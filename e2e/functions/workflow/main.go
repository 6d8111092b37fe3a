// Command workflow is the functions of the workflows that Truffle is evaluated with (section
// VI.B), by the path of a request:
//
//	/send      makes data as a step.Order says, and passes it on: a of a -> b, or the camera
//	/receive   reads its input and tells its digest: b
//	/decode    splits a video into as many parts as WORKFLOW_TARGETS has functions, passes
//	           each to one of them, and gathers their answers: fan-out and fan-in
//	/healthz   is there
//
// The functions know nothing of Headstart. Data is passed through the gateway at
// WORKFLOW_GATEWAY, in a body or by a store.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := service.Run(ctx, os.Getenv, "WORKFLOW_STARTUP", newHandler(os.Getenv)); err != nil {
		slog.Error("workflow ends", "error", err)
		os.Exit(1)
	}
}
