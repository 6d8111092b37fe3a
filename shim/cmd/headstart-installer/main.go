// headstart-installer puts Headstart's shim and its containerd runtime on a node of
// Kubernetes, and takes them off again. It runs as an init container of a DaemonSet of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "headstart-installer:", err)
		os.Exit(1)
	}
}
