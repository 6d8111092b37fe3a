package main

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// defaultWidth is for output that is not a terminal, such as a file or a pipe.
const defaultWidth = 110

// Spans leave their processes in batches, each at most 200 ms old, so who asks right
// after the answer waits that long for the rest.
const (
	spansTimeout = 2 * time.Second
	spansPoll    = 50 * time.Millisecond
)

// waterfallOptions are those for a terminal if out is one.
func waterfallOptions(out io.Writer) trace.WaterfallOptions {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return trace.WaterfallOptions{Width: width, Color: os.Getenv("NO_COLOR") == ""}
		}
	}
	return trace.WaterfallOptions{Width: defaultWidth}
}

// whole says whether the trace has the span that ends last: the gateway's, to which a mesh gives
// names of its own, or a job's.
func whole(t trace.Trace) bool {
	root, ok := t.Root()
	return ok && root.Name == tracing.Job || ok && !slices.Contains([]string{tracing.ServiceNode, tracing.ServiceControlPlane, tracing.ServiceShim}, root.Service)
}

// wholeTrace returns the trace once it is whole, or as much of it as there is when that
// does not come.
func wholeTrace(ctx context.Context, client *admin.Client, id string) (trace.Trace, error) {
	late := time.NewTimer(spansTimeout)
	defer late.Stop()
	tick := time.NewTicker(spansPoll)
	defer tick.Stop()
	for {
		t, err := client.Trace(ctx, id)
		if err != nil || whole(t) && !t.AwaitsActivation() {
			return t, err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return t, nil
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
}

func traceCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace [ID]", Short: "Show one request as a waterfall, or list the latest and slowest", Args: cobra.MaximumNArgs(1),
		Long: `Show the spans of one request, from gateway to function, as a waterfall that ends
with the time saved.
Without an id, list the latest and the slowest requests.

ID is a trace id, or the request's own, which is in the x-headstart-request header of
the answer to a request that was cold.

It asks the platform on this machine if one runs, else the control plane in the cluster.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.target(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			if len(args) == 0 {
				return c.listTraces(cmd, client)
			}
			t, err := wholeTrace(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), savingTrace{t, t.Saved()})
			}
			return trace.Waterfall(cmd.OutOrStdout(), t, waterfallOptions(cmd.OutOrStdout()))
		},
	}
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}
