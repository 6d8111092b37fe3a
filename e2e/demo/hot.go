package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// plainPort is the gateway without the filter, plainControl its control plane.
	plainPort    = 8081
	plainControl = 9470
	plainName    = "demo"
	// hotRequests per gateway; hotWarm of them come first and do not count.
	hotRequests = 2000
	hotWarm     = 200
	// hotTimeout is many times what the slowest step here takes.
	hotTimeout = 2 * time.Minute
)

// hot is what the hot requests showed.
type hot struct {
	with, without time.Duration // medians
	gatewayMiB    float64       // growth of the gateway while the largest video passes it
}

// measureHot compares the median of hot requests through the edge's gateway with that
// of a second Envoy beside it, which has the same configuration without the filter. The
// requests alternate.
func measureHot(ctx context.Context, bed *testbed.Bed, o options) (h hot, err error) {
	// A function of its own that stays hot. It has an input, so its requests enter the
	// filter, which looks for one; these ones name none, so they go straight to the instance.
	const function = "fire-hot"
	if err := bed.Apply(ctx, testbed.Function{Name: function, Image: testbed.Fire, Node: testbed.Edge, Annotations: map[string]string{
		"headstart.dev/scale-to-zero": "10m", "headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store}}); err != nil {
		return h, err
	}
	with := &probe{function: function, gateway: netip.AddrPortFrom(bed.Node(testbed.Edge).Address, testbed.GatewayPort)}
	defer with.client.CloseIdleConnections()
	if err := with.untilHot(ctx, bed); err != nil {
		return h, err
	}
	stop, err := startPlain(ctx, bed, o, function)
	if err != nil {
		return h, err
	}
	defer stop()
	without := &probe{function: function, gateway: netip.AddrPortFrom(bed.Node(testbed.Edge).Address, plainPort)}
	defer without.client.CloseIdleConnections()
	for range hotRequests {
		for _, p := range []*probe{with, without} {
			if err := p.once(ctx); err != nil {
				return h, err
			}
		}
	}
	h = hot{with: with.median(), without: without.median()}
	h.gatewayMiB, err = gatewayGrowth(ctx, bed, function)
	return h, err
}

// gatewayGrowth sends the largest video as a request's body and returns by how much the
// gateway grew at most meanwhile, in MiB.
func gatewayGrowth(ctx context.Context, bed *testbed.Bed, function string) (float64, error) {
	f, _, err := coldrun.Video(sizes[len(sizes)-1] * coldrun.Megabyte)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	grown, err := testbed.Growth(bed.PID("gateway-"+testbed.Edge), func() error {
		r, err := bed.Request(ctx, http.MethodPost, testbed.Edge, function, "/")
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(io.NewSectionReader(f, 0, size)), size
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the video as a body: %s", resp.Status)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	return float64(grown) / (1 << 20), err
}

// probe sends hot requests through one gateway.
type probe struct {
	function string
	gateway  netip.AddrPort
	client   http.Client
	took     []time.Duration
}

func (p *probe) once(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.gateway.String()+"/healthz", nil)
	if err != nil {
		return err
	}
	r.Host = p.function + ".default.headstart.local"
	began := time.Now()
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("hot request: %s", resp.Status)
	}
	if resp.Header.Get(filterapi.HeaderRequest) != "" {
		return errNotHot
	}
	p.took = append(p.took, time.Since(began))
	return nil
}

func (p *probe) median() time.Duration {
	counted := slices.Clone(p.took[min(hotWarm, len(p.took)-1):])
	slices.Sort(counted)
	return counted[len(counted)/2]
}

// errNotHot: the request went through the daemon, which names it in the answer.
var errNotHot = errors.New("the function is not hot")

// untilHot makes the function hot, waits until the gateway knows, and warms up.
func (p *probe) untilHot(ctx context.Context, bed *testbed.Bed) error {
	defer func() { p.took = nil }()
	return testbed.Poll(ctx, hotTimeout, func(ctx context.Context) error {
		if err := p.once(ctx); err != nil {
			return err
		}
		for len(p.took) < hotWarm {
			if err := p.once(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

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

// startPlain starts the second Envoy, under a control plane of its own that knows the
// one function and no filter.
func startPlain(ctx context.Context, bed *testbed.Bed, o options, function string) (stop func(), err error) {
	in, err := instanceOf(ctx, bed, function)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(bed.RunDir(), "plain")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	node := bed.Node(testbed.Edge)
	address := net.JoinHostPort(bed.ControlPlaneIP().String(), strconv.Itoa(plainControl))
	authority, err := pki.New(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(plainName, node.Address, bed.ControlPlaneIP())
	if err != nil {
		return nil, err
	}
	tls, _, err := peertls.Load(files.Cert, files.Key, files.CA)
	if err != nil {
		return nil, err
	}
	edgeRun := filepath.Join(bed.RunDir(), testbed.Edge)
	gateways := xds.New(xds.Config{ListenPort: plainPort, OTLPSocket: filepath.Join(bed.RunDir(), "otlp.sock"), TraceSampling: 100,
		Verify: func(context.Context, string) error { return nil }, OnLoad: func(string, []xds.Load) {}}, slog.New(slog.DiscardHandler))
	state := platform.State{Functions: []platform.Function{{Name: "default/" + function, Hosts: []string{function + ".default.headstart.local"},
		RequestTimeout: hotTimeout}}, Instances: []platform.Instance{in}}
	if err := gateways.Update(state, []xds.Gateway{{ID: plainName, IngressSocket: filepath.Join(edgeRun, "ingress.sock"), HintSocket: filepath.Join(edgeRun, "hints.sock")}}); err != nil {
		return nil, err
	}
	server := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(tls)))...)
	gateways.Register(server)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends with Stop; Envoy says what went wrong before
	}()
	group := process.New(func(process.Exit) {})
	stop = func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), hotTimeout)
		defer cancel()
		group.Stop(end)
		server.Stop()
		<-served
	}
	b, err := xds.Bootstrap(xds.BootstrapConfig{NodeID: plainName, Cluster: "demo", ControlPlaneAddress: address, ServerName: plainName,
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, AdminSocket: filepath.Join(dir, "envoy.sock")})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "envoy.json"), b, 0o600)
	}
	if err == nil {
		err = group.Start(ctx, process.Spec{Name: "plain", Path: filepath.Join(o.bin, "envoy"), NetNS: node.Namespace,
			Args: []string{"--config-path", filepath.Join(dir, "envoy.json"), "--concurrency", "2", "--disable-hot-restart", "--log-level", "error"},
			Ready: func(ctx context.Context) error {
				p := &probe{function: function, gateway: netip.AddrPortFrom(node.Address, plainPort)}
				defer p.client.CloseIdleConnections()
				return testbed.Poll(ctx, hotTimeout, p.once)
			}})
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
