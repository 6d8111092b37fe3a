// Command cluster brings a Kubernetes cluster for tests up on this machine, and down.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/cluster/cloud"
)

const (
	// upTimeout is for a machine that others keep busy; about 15 s are usual.
	upTimeout = 5 * time.Minute
	// downTimeout is more than a supervisor takes until it gives up.
	downTimeout = 3 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var c cluster.Config
	cmd := &cobra.Command{Use: "cluster", Short: "A Kubernetes cluster on this machine, for tests", SilenceUsage: true, SilenceErrors: true}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.Dir, "dir", cluster.DefaultDir, "where the cluster keeps its state")
	flags.StringVar(&c.BinDir, "bin", "", "where the programs are (default: $HEADSTART_CLUSTER_BIN, or where build.sh puts them)")
	c.Progress = func(step string) { fmt.Fprintln(os.Stderr, "·", step) }
	cmd.AddCommand(up(&c), down(&c), status(&c), exec(&c), importImage(&c), node(&c), apiserver(&c))
	return cmd
}

func up(c *cluster.Config) *cobra.Command {
	detach := false
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs, Short: "Bring the cluster up, and down again at Ctrl-C",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if detach {
				return inBackground(cmd.Context(), c.Dir)
			}
			return run(cmd.Context(), *c)
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "leave it running in the background, until `cluster down`")
	return cmd
}

// run is the supervisor's life.
func run(ctx context.Context, c cluster.Config) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	running, err := cluster.Up(bounded, c)
	if err != nil {
		return err
	}
	c.Progress(fmt.Sprintf("the cluster is up after %.1f s:", time.Since(began).Seconds()))
	fmt.Printf("export KUBECONFIG=%s\n", running.Kubeconfig())
	select {
	case <-ctx.Done():
	case <-running.Done():
	}
	c.Progress("taking the cluster down")
	return running.Down(context.WithoutCancel(ctx))
}

func down(c *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use: "down", Args: cobra.NoArgs, Short: "Take the cluster down, or what a killed one left",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), downTimeout)
			defer cancel()
			began := time.Now()
			running, err := cluster.Attach(ctx, c.Dir)
			switch {
			case errors.Is(err, cluster.ErrNotRunning):
				// A world's cloud is killed together with its cluster.
				err = errors.Join(cluster.Sweep(ctx, *c), cloud.Sweep())
			case err == nil:
				err = running.Down(ctx)
			}
			if err == nil {
				c.Progress(fmt.Sprintf("nothing is left but logs after %.1f s", time.Since(began).Seconds()))
			}
			return err
		},
	}
}

func status(c *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "What is running",
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := cluster.Attach(cmd.Context(), c.Dir)
			if err != nil {
				return err
			}
			s := running.Status()
			fmt.Printf("export KUBECONFIG=%s\nlogs: %s\n", s.Kubeconfig, running.LogDir())
			for _, n := range s.Nodes {
				fmt.Printf("%s: %s, pods %s\n", n.Name, n.Address, n.PodSubnet)
			}
			fmt.Println(strings.Join(s.Processes, "\n"))
			return nil
		},
	}
}

func exec(c *cluster.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec NODE COMMAND...", Args: cobra.MinimumNArgs(2), Short: "Run a command on a node",
		RunE: func(cmd *cobra.Command, args []string) error {
			running, err := cluster.Attach(cmd.Context(), c.Dir)
			if err != nil {
				return err
			}
			n, err := running.Node(args[0])
			if err != nil {
				return err
			}
			command := n.Command(cmd.Context(), args[1:]...)
			command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
			return command.Run()
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the node is the command's
	return cmd
}

func importImage(c *cluster.Config) *cobra.Command {
	return &cobra.Command{
		Use: "import ARCHIVE...", Args: cobra.MinimumNArgs(1), Short: "Put images of tar archives on all nodes",
		RunE: func(cmd *cobra.Command, args []string) error {
			running, err := cluster.Attach(cmd.Context(), c.Dir)
			if err != nil {
				return err
			}
			for _, archive := range args {
				if err := running.ImportImage(cmd.Context(), archive); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func node(c *cluster.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "What may happen to a node"}
	cmd.AddCommand(
		onNode(c, "stop", "Lose a node, with all that runs on it", (*cluster.Cluster).StopNode),
		onNode(c, "start", "Start a lost node again", (*cluster.Cluster).StartNode),
		onNode(c, "restart-containerd", "Restart a node's containerd", (*cluster.Cluster).RestartContainerd))
	return cmd
}

func onNode(c *cluster.Config, use, short string, act func(*cluster.Cluster, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE", Args: cobra.ExactArgs(1), Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			running, err := cluster.Attach(cmd.Context(), c.Dir)
			if err != nil {
				return err
			}
			return act(running, cmd.Context(), args[0])
		},
	}
}

func apiserver(c *cluster.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "apiserver", Short: "What may happen to the API server"}
	for use, act := range map[string]func(*cluster.Cluster, context.Context) error{
		"stop": (*cluster.Cluster).StopAPIServer, "start": (*cluster.Cluster).StartAPIServer,
	} {
		cmd.AddCommand(&cobra.Command{
			Use: use, Args: cobra.NoArgs, Short: strings.ToUpper(use[:1]) + use[1:] + " the API server",
			RunE: func(cmd *cobra.Command, _ []string) error {
				running, err := cluster.Attach(cmd.Context(), c.Dir)
				if err != nil {
					return err
				}
				return act(running, cmd.Context())
			},
		})
	}
	return cmd
}
