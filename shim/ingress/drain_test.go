package ingress_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A daemon whose successor is there ends the requests that it has, however far they are, and
// no connection brings it more than one other.
func TestADaemonThatIsReplacedEndsItsRequests(t *testing.T) {
	placed, parked := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	var asked atomic.Int32
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		if asked.Add(1) == 1 {
			close(parked)
			<-placed
		}
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1", Cold: true}, nil
	}
	answered := make(chan string, 1)
	go func() { answered <- read(t, r.do(t, request(t, "GET", withoutInput, "", "", nil)).Body) }()
	<-parked
	drained := make(chan struct{})
	go func() { r.Drain(t.Context()); close(drained) }()
	eventually(t, "a connection that ends", func() bool {
		resp := r.do(t, request(t, "GET", withoutInput, "", "", nil))
		return read(t, resp.Body) == "done" && resp.Close
	})
	select {
	case <-drained:
		t.Error("a request that waits was given up")
	default:
	}
	close(placed)
	if got := <-answered; got != "done" {
		t.Errorf("it is answered %q", got)
	}
	<-drained
}

// A request that does not end keeps no daemon for ever.
func TestDrainingIsBounded(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(http.ResponseWriter, *http.Request) { close(inside); <-release })
	answered := make(chan struct{})
	go func() { r.do(t, request(t, "GET", withoutInput, "", "", nil)); close(answered) }()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Drain(ctx)
	close(release)
	<-answered
}
