package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/plain"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
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
	filtersMiB    float64       // memory of the gateway beyond that of one without filters
	refused       time.Duration // by the gateway, when it had been killed
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
	pid, stop, err := plain.Start(ctx, bed, o.bin, function)
	if err != nil {
		return h, err
	}
	defer stop()
	without := &probe{function: function, gateway: netip.AddrPortFrom(bed.Node(testbed.Edge).Address, plain.Port)}
	defer without.client.CloseIdleConnections()
	for range hotRequests {
		for _, p := range []*probe{with, without} {
			if err := p.once(ctx); err != nil {
				return h, err
			}
		}
	}
	h = hot{with: with.median(), without: without.median()}
	if h.filtersMiB, err = filtersMemory(bed.PID("gateway-"+testbed.Edge), pid); err != nil {
		return h, err
	}
	if h.gatewayMiB, err = gatewayGrowth(ctx, bed, function); err != nil {
		return h, err
	}
	h.refused, err = restartRefused(ctx, bed, with)
	return h, err
}

// filtersMemory is how much more of memory one process has than another, in MiB.
func filtersMemory(with, without int) (float64, error) {
	more, err := testbed.Memory(with, "VmRSS")
	if err != nil {
		return 0, err
	}
	less, err := testbed.Memory(without, "VmRSS")
	return float64(more-less) / (1 << 20), err
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
