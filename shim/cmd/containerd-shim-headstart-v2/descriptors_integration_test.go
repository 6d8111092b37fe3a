//go:build integration

package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// A program inherits the descriptors that the daemon has for its sandbox, and no others.
func TestSandboxInheritsDescriptors(t *testing.T) {
	n := newNode(t)
	want := map[string]string{"db": "a session", "cache": "another"}
	n.serve(t, "node.sock", func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{
			ours: &nodeapi.DescribeResponse{Descriptors: []string{"db", "cache"}},
		})
	})
	l, err := net.Listen("unix", descriptors.Path(n.path("node.sock")))
	if err != nil {
		t.Fatal(err)
	}
	open := func(container string) (files []*os.File, err error) {
		if container != "ours" {
			t.Errorf("container %q asks", container)
		}
		for _, name := range []string{"db", "cache"} {
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			if _, err := w.WriteString(want[name]); err != nil {
				return nil, err
			}
			files = append(files, r)
			_ = w.Close() // what was written stays in the pipe
		}
		return files, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- descriptors.Serve(ctx, open, slog.New(slog.DiscardHandler))(l) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	s := n.sandbox(t, "ours")
	defer s.remove(t)
	if diff := cmp.Diff(want, s.view(t).Inherited); diff != "" {
		t.Errorf("inherited (-want +got):\n%s", diff)
	}
}
