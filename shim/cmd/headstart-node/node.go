package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// node does what the control plane says (uplink.Handler).
type node struct {
	functions *ingress.Functions
	stores    *stores
	instances *instance.Set
	uplink    *uplink.Uplink
	ingress   *ingress.Ingress
}

func (n *node) Functions(m *nodeapi.Functions) {
	// Stores first: a function that is known must find its store.
	n.stores.set(m.GetStores())
	n.functions.Set(m.GetFunctions())
}

func (n *node) Start(m *nodeapi.StartInstance) { n.instances.Start(m) }

func (n *node) Stop(m *nodeapi.StopInstance) { n.instances.Stop(m.GetId(), m.GetGrace().AsDuration()) }

func (n *node) Expect(m *nodeapi.Expect) { n.ingress.Expect(m) }

// sandboxes answers the shims.
type sandboxes struct {
	nodeapi.UnimplementedSandboxesServer
	instances *instance.Set
	otlp      string
}

func (s *sandboxes) Describe(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	d, ok := s.instances.Describe(r.GetSandbox(), s.otlp)
	if !ok {
		return nil, status.Error(codes.NotFound, "not an instance of this node's daemon")
	}
	return d, nil
}
