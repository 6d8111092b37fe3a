package node_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/observed"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
	"github.com/headstart-mesh/headstart/shim/stores"
	"github.com/headstart-mesh/headstart/shim/workflow"
)

// asks is a runtime whose making of a sandbox is a shim's question about it.
type asks struct{ create func(id string) }

func (a asks) Create(_ context.Context, s sandboxes.Spec) (sandboxes.Container, error) {
	a.create(s.ID)
	return nil, errors.New("that was all")
}

func (asks) List(context.Context) ([]sandboxes.Container, error) { return nil, nil }

// hosts notes the names that sandboxes find functions by.
type hosts struct{ names []string }

func (h *hosts) Resolve(names []string) error { h.names = names; return nil }

// A shim that is making a sandbox learns what belongs in it; of others it learns that
// they are none of ours.
func TestDescribe(t *testing.T) {
	var set *sandboxes.Local
	type answer struct {
		r   *nodeapi.DescribeResponse
		err error
	}
	answered := make(chan answer, 1)
	sockets := functionapi.New(functionapi.Config{Metrics: functionapi.NewMetrics(prometheus.NewRegistry())})
	set, err := sandboxes.OpenLocal(t.Context(), sandboxes.Config{Dir: t.TempDir(), Providers: []sandboxes.Provider{sockets},
		Jobs: job.New(job.Config{}), OTLP: "unix:/run/otlp.sock", Log: slog.New(slog.DiscardHandler)}, asks{func(id string) {
		r, err := set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: id})
		answered <- answer{r, err}
	}}, func(*nodeapi.InstanceStatus) {})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	n := node.NewLocal(node.Parts{}, set, &hosts{}, slog.New(slog.DiscardHandler))
	n.Start(&nodeapi.StartInstance{Id: "video-1",
		Function: &nodeapi.Function{Name: "default/video", Port: 8080, ReadyTimeout: durationpb.New(1 << 40)}})
	a := <-answered
	if a.err != nil {
		t.Fatal(a.err)
	}
	if m := a.r.GetMounts(); len(m) != 3 || m[0].GetDestination() != staging.Mount || !m[0].GetReadOnly() ||
		m[1].GetDestination() != staging.NamedMount ||
		a.r.GetOtlpTarget() != "unix:/run/otlp.sock" {
		t.Errorf("described as %v", a.r)
	}
	_, err = set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: "another"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("another's sandbox: %v", err)
	}
	n.Stop(&nodeapi.StopInstance{Id: "another"}) // is none of ours either
}

type servers struct{ all []*nodeapi.Destination }

func (s *servers) Allow(*nodeapi.Allowances) {}

func (s *servers) Set(all []*nodeapi.Destination) { s.all = all }

// Whoever knows a function finds its store, and its sandboxes each other by their functions' hosts.
func TestStoresComeBeforeFunctions(t *testing.T) {
	s, err := stores.Open(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, reached := &hosts{}, &servers{}
	log := slog.New(slog.DiscardHandler)
	watched := observed.New()
	n := node.NewLocal(node.Parts{Functions: ingress.NewFunctions(), Stores: s, Destinations: reached, Workflows: workflow.New(workflow.Config{}), Observed: watched,
		Relay: relay.New(relay.Config{Metrics: relay.NewMetrics(prometheus.NewRegistry()), Log: log})}, nil, found, log)
	n.Functions(&nodeapi.Functions{
		Functions: []*nodeapi.Function{{Name: "default/video", Store: "edge", Hosts: []string{"video.default"}},
			{Name: "default/watched", Store: "edge", Observed: map[string]string{"": "s3://videos/{header.x-key}"}}},
		Stores: []*nodeapi.Store{{Name: "edge", Endpoint: "http://one.example", Region: "us-east-1", PathStyle: true,
			Buckets: []string{"videos"}, Secret: "edge"}},
		Destinations: []*nodeapi.Destination{{Name: "orders"}}})
	if len(reached.all) != 1 {
		t.Errorf("the destinations are %v", reached.all)
	}
	if _, err := s.Source("default/fire", "edge"); err != nil {
		t.Error(err)
	}
	if all := watched.List("default"); len(all) != 1 || all[0].GetObserved().GetFunction() != "default/watched" {
		t.Errorf("observed are %v", all)
	}
	if !slices.Equal(found.names, []string{"video.default"}) {
		t.Errorf("sandboxes find %v", found.names)
	}
}
