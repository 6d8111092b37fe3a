//go:build integration

package gateway

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

func both(t *testing.T) func(*gateway.Config) {
	return func(c *gateway.Config) {
		c.Filters = programtest.Path(t, "filters.wasm")
	}
}

// The oldest Envoy that is tested loads the filters as the newest does.
func TestTheOldestEnvoy(t *testing.T) {
	b := lay(t, coldState(), both(t))
	b.program = "envoy-oldest"
	b.launch()
	daemon, hints := b.listen("unix", b.gw.IngressSocket, "daemon"), b.listenForHints()
	b.ready()
	b.settle()
	if got := b.get(video().Hosts[0], "x-key", "cam1.mjpeg"); got.body != "daemon" {
		t.Errorf("got %+v", got)
	}
	if _, r := daemon.requests(); r.Header.Get(filterapi.HeaderInput) != "s3://videos/cam1.mjpeg" {
		t.Errorf("the daemon gets %v", r.Header)
	}
	b.eventually("the hint arrives", func() bool { n, _ := hints.requests(); return n == 1 })
	if p := b.problems(); len(p) != 0 {
		t.Errorf("problems: %+v", p)
	}
}

// An Envoy that was built without Wasm serves, and says what it cannot do.
func TestAnEnvoyWithoutWasm(t *testing.T) {
	b := lay(t, coldState(), both(t))
	b.program = "envoy-without-wasm"
	b.launch()
	b.listen("unix", b.gw.IngressSocket, "daemon")
	instance := b.listen("tcp", "127.0.0.1:0", "instance")
	b.ready()
	st := coldState()
	st.Instances = []platform.Instance{ready(video(), "one", instance.address)}
	b.update(st)
	b.settle()
	if got := b.get(video().Hosts[0], "x-key", "cam1.mjpeg"); got.body != "daemon" {
		t.Errorf("a request that names an input got %+v", got)
	}
	if got := b.get(video().Hosts[0]); got.body != "instance" {
		t.Errorf("one that names none got %+v", got)
	}
	problems := b.problems()
	if len(problems) != 1 || !strings.Contains(problems[0].GetWords(), "was built without Wasm") {
		t.Errorf("problems: %+v", problems)
	}
}
