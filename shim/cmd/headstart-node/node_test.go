package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// asks is a runtime whose making of a sandbox is a shim's question about it.
type asks struct{ create func(id string) }

func (a asks) Create(_ context.Context, s sandboxes.Spec) (sandboxes.Container, error) {
	a.create(s.ID)
	return nil, errors.New("that was all")
}

func (asks) List(context.Context) ([]sandboxes.Container, error) { return nil, nil }

// A shim that is making a sandbox learns what belongs in it; of others it learns that
// they are none of ours.
func TestDescribe(t *testing.T) {
	n := &node{inputs: &inputs{}, sockets: functionapi.New(functionapi.Config{Metrics: functionapi.NewMetrics(prometheus.NewRegistry())}), jobs: job.New(job.Config{})}
	type answer struct {
		r   *nodeapi.DescribeResponse
		err error
	}
	answered := make(chan answer, 1)
	set, err := sandboxes.OpenLocal(t.Context(), n.sandboxes(config{stateDir: t.TempDir()}, "unix:/run/otlp.sock", slog.New(slog.DiscardHandler)), asks{func(id string) {
		r, err := n.local.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: id})
		answered <- answer{r, err}
	}}, func(*nodeapi.InstanceStatus) {})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	n.local = set
	n.Start(&nodeapi.StartInstance{Id: "video-1", Function: &nodeapi.Function{Name: "default/video", Port: 8080, ReadyTimeout: durationpb.New(1 << 40)}})
	a := <-answered
	if a.err != nil {
		t.Fatal(a.err)
	}
	if m := a.r.GetMounts(); len(m) != 2 || m[0].GetDestination() != staging.Mount || !m[0].GetReadOnly() || a.r.GetOtlpTarget() != "unix:/run/otlp.sock" {
		t.Errorf("described as %v", a.r)
	}
	if _, err := set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: "another"}); status.Code(err) != codes.NotFound {
		t.Errorf("another's sandbox: %v", err)
	}
	n.Stop(&nodeapi.StopInstance{Id: "another"}) // is none of ours either
}
