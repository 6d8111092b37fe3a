// Package plain is an Envoy beside the test bed's own, with the same configuration but
// without Headstart: what hot requests are compared with.
package plain

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/e2e/ads"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/gateway"
)

const (
	// Port is the gateway's.
	Port = 8081
	name = "plain"
	// timeout is many times what the slowest step here takes.
	timeout = 2 * time.Minute
)

func instanceOf(ctx context.Context, bed *testbed.Bed, function string) (platform.Instance, error) {
	s, err := bed.Client().Status(ctx)
	if err != nil {
		return platform.Instance{}, err
	}
	for _, f := range s.Functions {
		for _, in := range f.Instances {
			if f.Name == "default/"+function && in.Phase == platform.Ready {
				return platform.Instance{ID: in.ID, Function: f.Name, Node: in.Node, Phase: in.Phase, Address: in.Address}, nil
			}
		}
	}
	return platform.Instance{}, fmt.Errorf("function %s is not hot", function)
}

// Start starts an Envoy on the edge node, at Port, under a control plane of its own that
// knows the one hot function and no filter. pid is Envoy's; stop ends both.
func Start(ctx context.Context, bed *testbed.Bed, binDir, function string) (pid int, stop func(), err error) {
	in, err := instanceOf(ctx, bed, function)
	if err != nil {
		return 0, nil, err
	}
	dir := filepath.Join(bed.RunDir(), name)
	node, edgeRun := bed.Node(testbed.Edge), filepath.Join(bed.RunDir(), testbed.Edge)
	server, err := ads.Open(filepath.Join(dir, "xds"))
	if err != nil {
		return 0, nil, err
	}
	group := process.New(func(process.Exit) {})
	stop = func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		group.Stop(end)
		_ = server.Close() // of a directory that goes with the bed
	}
	state := platform.State{Functions: []platform.Function{{Name: "default/" + function, Hosts: []string{function + ".default.headstart.local"},
		RequestTimeout: timeout}}, Instances: []platform.Instance{in}}
	err = server.Update(state, nil)
	var b []byte
	if err == nil {
		b, err = server.Gateway(gateway.Config{Node: name, Port: Port,
			IngressSocket: filepath.Join(edgeRun, "ingress.sock"), HintSocket: filepath.Join(edgeRun, "hints.sock"),
			AdminSocket: filepath.Join(dir, "envoy.sock"), OTLPSocket: filepath.Join(bed.RunDir(), "otlp.sock"), TraceSampling: 100})
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "envoy.json"), b, 0o600)
	}
	if err == nil {
		err = group.Start(ctx, process.Spec{Name: name, Path: filepath.Join(binDir, "envoy"), NetNS: node.Namespace,
			Args: []string{"--config-path", filepath.Join(dir, "envoy.json"), "--concurrency", "2", "--disable-hot-restart", "--log-level", "error"},
			Ready: func(ctx context.Context) error {
				return testbed.Poll(ctx, timeout, answers(netip.AddrPortFrom(node.Address, Port), function))
			}})
	}
	if err != nil {
		stop()
		return 0, nil, err
	}
	return group.Status()[0].PID, stop, nil
}

// answers tells whether the gateway has the function.
func answers(gateway netip.AddrPort, function string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway.String()+"/healthz", nil)
		if err != nil {
			return err
		}
		r.Host, r.Close = function+".default.headstart.local", true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the gateway answers %s", resp.Status)
		}
		return nil
	}
}
