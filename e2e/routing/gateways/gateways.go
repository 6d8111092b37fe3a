// Package gateways are the ways to route that are compared: each puts an Envoy on every node
// of the test bed, to which that node's users come.
package gateways

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// Port is every gateway's.
	Port = 8080
	// Host is the function's name there.
	Host = "worker.default.headstart.local"
	// readyTimeout is many times what an Envoy takes to start, with a filter to compile.
	readyTimeout = 60 * time.Second
	// concurrency is each Envoy's: threads that must agree, as any gateway has.
	concurrency = 2
	adminMode   = 0o600
)

// Variant is a way to route.
type Variant interface {
	// Name is in tables and figures.
	Name() string
	// Open starts a gateway on each of the bed's nodes, and whatever tells them how to
	// route. On error nothing is left.
	Open(ctx context.Context, b *bed.Bed) (*Set, error)
}

// Set is a variant's gateways.
type Set struct {
	bed     *bed.Bed
	envoys  *process.Group
	sockets map[string]string // of the admin interfaces, by node
	cluster string            // as Envoy calls the function's
	// control ends what tells the gateways how to route, where there is such: it asks them, and must
	// not find them gone.
	control func() error
	closers []func(context.Context) error
}

func newSet(b *bed.Bed, cluster string) *Set {
	return &Set{bed: b, envoys: process.New(func(process.Exit) {}), sockets: map[string]string{}, cluster: cluster, control: func() error { return nil }}
}

// Address is where a node's users find the function.
func (s *Set) Address(n bed.Node) string { return netip.AddrPortFrom(n.Address, Port).String() }

// onClose has something ended with the set; what began last ends first.
func (s *Set) onClose(end func(context.Context) error) { s.closers = append(s.closers, end) }

// Close ends the gateways and what told them how to route.
func (s *Set) Close(ctx context.Context) error {
	errs := []error{s.control()}
	s.envoys.Stop(ctx)
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last](ctx))
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}

// start starts a node's Envoy and waits until it answers for the function.
func (s *Set) start(ctx context.Context, n bed.Node, config []byte) error {
	dir := filepath.Join(s.bed.RunDir(), n.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	log, err := s.bed.Log("gateway-" + n.Name)
	if err != nil {
		return err
	}
	s.sockets[n.Name] = s.admin(n)
	return s.envoys.Start(ctx, process.Spec{
		Name: "gateway-" + n.Name, Path: filepath.Join(s.bed.BinDir(), "envoy"), NetNS: n.Namespace, Log: log,
		Args: []string{"--config-path", file, "--concurrency", strconv.Itoa(concurrency), "--disable-hot-restart", "--log-level", "warning"},
		Ready: func(ctx context.Context) error {
			return testbed.Poll(ctx, readyTimeout, func(ctx context.Context) error { return s.answers(ctx, n) })
		}})
}

// admin is the path of an Envoy's admin interface.
func (s *Set) admin(n bed.Node) string { return filepath.Join(s.bed.RunDir(), n.Name, "envoy.sock") }

func (s *Set) answers(ctx context.Context, n bed.Node) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address(n)+"/healthz", nil)
	if err != nil {
		return err
	}
	r.Host, r.Close = Host, true
	return get(http.DefaultTransport, r, nil)
}

// Rebuilds returns how often a node's Envoy has built its list of the function's endpoints
// anew.
func (s *Set) Rebuilds(ctx context.Context, n bed.Node) (float64, error) {
	updates, err := s.counter(ctx, n, "update_success")
	if err != nil {
		return 0, err
	}
	same, err := s.counter(ctx, n, "update_no_rebuild")
	return updates - same, err
}

// counter is one of Envoy's statistics of the function's cluster; one that was never counted
// is 0.
func (s *Set) counter(ctx context.Context, n bed.Node, name string) (value float64, err error) {
	full := "cluster." + s.cluster + "." + name
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/stats?filter=^"+full+"$", nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.sockets[n.Name])
	}}
	err = get(transport, r, func(resp *http.Response) error {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if number, ok := strings.CutPrefix(lines.Text(), full+": "); ok {
				value, err = strconv.ParseFloat(number, 64)
			}
		}
		return err
	})
	return value, err
}

// Memory is what a node's Envoy has in memory, in bytes.
func (s *Set) Memory(n bed.Node) (bytes int64, err error) {
	pid, err := s.pid(n)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("statm of the gateway of %s: %w", n.Name, err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// CPU is for how long a node's Envoy has computed since it began, all its threads together.
func (s *Set) CPU(n bed.Node) (used time.Duration, err error) {
	pid, err := s.pid(n)
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		var nanoseconds time.Duration
		if _, err := fmt.Sscanf(string(text), "%d", &nanoseconds); err != nil {
			return 0, fmt.Errorf("schedstat of the gateway of %s: %w", n.Name, err)
		}
		used += nanoseconds
	}
	return used, nil
}

func (s *Set) pid(n bed.Node) (int, error) {
	for _, p := range s.envoys.Status() {
		if p.Name == "gateway-"+n.Name {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("%s has no gateway", n.Name)
}

func get(by http.RoundTripper, r *http.Request, read func(*http.Response) error) error {
	resp, err := by.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", r.URL.Host, resp.Status)
	}
	if read == nil {
		return nil
	}
	return read(resp)
}

func encode(b *bootstrap.Bootstrap) ([]byte, error) {
	if err := b.ValidateAll(); err != nil {
		return nil, err
	}
	return protojson.Marshal(b)
}
