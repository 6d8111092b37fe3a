package nodes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Confirm asks each node that is connected, and waits for the word of each, but not of those that leave.
func TestConfirm(t *testing.T) {
	cp := serve(t)
	if err := cp.Confirm(t.Context()); err != nil {
		t.Errorf("of no nodes: %v", err)
	}
	edge, cloud := cp.connect(t, "edge", "v1"), cp.connect(t, "cloud", "v1")
	edge.wantFunctions()
	cloud.wantFunctions()
	ask := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() { done <- cp.Confirm(ctx) }()
		return done
	}
	answer := func(n *node, id int64) {
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Confirmed{Confirmed: &nodeapi.Confirmed{Id: id}}})
	}
	done := ask(t.Context())
	first, second := edge.receive().GetConfirm().GetId(), cloud.receive().GetConfirm().GetId()
	answer(edge, first+1) // to another question
	answer(edge, first)
	answer(edge, first) // and once more
	select {
	case err := <-done:
		t.Errorf("before the other node's word: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	answer(cloud, second)
	if err := <-done; err != nil {
		t.Error(err)
	}

	short, cancel := context.WithCancel(t.Context())
	done = ask(short)
	answer(edge, edge.receive().GetConfirm().GetId())
	cloud.receive()
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "waiting for the gateway of ") {
		t.Errorf("when nobody waits any longer: %v", err)
	}

	done = ask(t.Context())
	answer(edge, edge.receive().GetConfirm().GetId())
	cloud.receive()
	cloud.end()
	if err := <-done; err != nil {
		t.Errorf("with one that has left: %v", err)
	}
}
