// Command containerd-shim-headstart-v2 is the containerd runtime
// io.containerd.headstart.v2: runc, and before it the node's daemon. One binary serves
// containerd from 1.6 on.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	runctask "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

// name is the runtime's; containerd makes the binary's name from it.
const name = "io.containerd.headstart.v2"

func main() {
	args := parse(os.Args[1:])
	if args.version {
		fmt.Printf("%s %s %s\n", filepath.Base(os.Args[0]), nodeapi.Version, goruntime.Version())
		return
	}
	shims := adapter{manager.NewShimManager(name)}
	if args.action == "start" {
		done, err := start(shims, args)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		if done {
			return
		}
	}
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTask,
	})
	shim.RunShim(context.Background(), shims)
}

// newTask makes the task service, over runc's.
func newTask(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	instance, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	sd := instance.(shutdown.Service)
	inner, err := runctask.NewTaskService(ic.Context, publisher.(shim.Publisher), sd)
	if err != nil {
		return nil, fmt.Errorf("making runc's task service: %w", err)
	}
	s := runtime.New(inner, runtime.Node{
		Socket: cmp.Or(os.Getenv(runtime.SocketVariable), runtime.DefaultSocket),
		Roots:  filepath.SplitList(cmp.Or(os.Getenv(runtime.RootsVariable), runtime.DefaultRoots)),
		Binds:  runtime.Kernel{},
	}, nodeapi.Version)
	runc.Monitor = s.Monitor(runc.Monitor) // the one that runc's task service has set
	sd.RegisterCallback(s.Close)
	return s, nil
}
