// Package bed is the test bed of FaaSt's evaluation (section III.A): nodes in network
// namespaces, an emulated link between each two of them, and on each an instance of a
// function with so many workers. Gateways are not part of it.
package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// functionPort is every node's.
	functionPort = 9000
	// readyTimeout is many times what a function takes to start, and requestTimeout what a
	// request to it takes.
	readyTimeout   = 20 * time.Second
	requestTimeout = 10 * time.Second
	closeTimeout   = 30 * time.Second
)

// Config says what the bed is like.
type Config struct {
	// Name tells its devices and namespaces from others', up to 8 letters.
	Name string
	// BinDir holds what `make build` made; WorkDir is for logs.
	BinDir, WorkDir string
	// Subnet is a /16 for the nodes; the one after it is for the links.
	Subnet netip.Prefix
	Nodes  []Spec
	// Path says how far two nodes are from each other.
	Path func(a, b Spec) Path
	// Seed is of the paths' jitter.
	Seed uint64
}

// Spec is a node as it is wanted.
type Spec struct {
	// Name is up to 11 letters, digits and dashes.
	Name string
	// Region tells near from far: nodes of one region are near each other.
	Region string
	// Workers is how many requests the node's function works on at a time.
	Workers int
}

// Path is the way between two nodes: its round trip, normally distributed with Jitter as the
// standard deviation.
type Path struct{ RTT, Jitter time.Duration }

// Node is a running one.
type Node struct {
	Spec
	Namespace string // path of the network namespace
	Address   netip.Addr
	// Function is where the node's instance listens.
	Function netip.AddrPort
}

// Bed is a running one.
type Bed struct {
	Nodes []Node

	c         Config
	network   *network.Network
	links     *process.Group
	functions *process.Group
	logs      []*os.File
	client    *http.Client
}

// Open makes the bed. On error nothing is left.
func Open(ctx context.Context, c Config) (_ *Bed, err error) {
	var names []string
	for _, s := range c.Nodes {
		names = append(names, s.Name)
	}
	b := &Bed{c: c, links: process.New(func(process.Exit) {}), functions: process.New(func(process.Exit) {}),
		client: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := os.MkdirAll(c.WorkDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.RunDir(), 0o700); err != nil {
		return nil, err
	}
	if b.network, err = network.Open(ctx, network.Config{Name: c.Name, Nodes: names, Subnet: c.Subnet}); err != nil {
		return nil, err
	}
	for _, s := range c.Nodes {
		n, _ := b.network.Node(s.Name) // it was asked for
		b.Nodes = append(b.Nodes, Node{Spec: s, Namespace: n.Namespace, Address: n.Address, Function: netip.AddrPortFrom(n.Address, functionPort)})
	}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	for _, n := range b.Nodes {
		if err := b.startFunction(ctx, n); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return b, nil
}

// Close ends everything and waits for it.
func (b *Bed) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	b.client.CloseIdleConnections()
	b.functions.Stop(ctx)
	b.links.Stop(ctx)
	var errs []error
	if b.network != nil {
		errs = append(errs, b.network.Close())
	}
	for _, f := range b.logs {
		errs = append(errs, f.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.RunDir()))...)
}

// RunDir is for sockets and what else lives as long as the bed: short, for the limit on their
// paths.
func (b *Bed) RunDir() string { return "/run/" + b.c.Name }

// BinDir holds the programs.
func (b *Bed) BinDir() string { return b.c.BinDir }

// Host is this machine's address as the nodes see it. It is as near to each of them as can
// be: what it sends a node comes from beside that node.
func (b *Bed) Host() netip.Addr { return b.network.Gateway() }

// Log opens a new log file for a process, which Close closes.
func (b *Bed) Log(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(b.c.WorkDir, name+".log"))
	if err == nil {
		b.logs = append(b.logs, f)
	}
	return f, err
}

func (b *Bed) startFunction(ctx context.Context, n Node) error {
	log, err := b.Log("function-" + n.Name)
	if err != nil {
		return err
	}
	return b.functions.Start(ctx, process.Spec{
		Name: "function-" + n.Name, Path: filepath.Join(b.c.BinDir, "worker"), NetNS: n.Namespace, Log: log,
		Env: append(os.Environ(), fmt.Sprintf("PORT=%d", functionPort), fmt.Sprintf("WORKERS=%d", n.Workers), "WORKER_NAME="+n.Name),
		Ready: func(ctx context.Context) error {
			return testbed.Poll(ctx, readyTimeout, func(ctx context.Context) error { return b.call(ctx, http.MethodGet, n, "/healthz", nil) })
		},
	})
}

// State is what a node's function has to do, and has done since it began.
type State struct {
	Workers  int     `json:"workers"`
	InFlight int     `json:"in_flight"`
	Queued   int     `json:"queued"`
	Served   int     `json:"served"`
	Service  float64 `json:"service_s"`
	Sojourn  float64 `json:"sojourn_s"`
}

// State asks a node's function.
func (b *Bed) State(ctx context.Context, n Node) (s State, err error) {
	return s, b.call(ctx, http.MethodGet, n, "/state", &s)
}

// Slow has a node's function take so many times longer; 1 is as fast as it is.
func (b *Bed) Slow(ctx context.Context, n Node, factor float64) error {
	return b.call(ctx, http.MethodPost, n, "/slow?factor="+strconv.FormatFloat(factor, 'g', -1, 64), nil)
}

func (b *Bed) call(ctx context.Context, method string, n Node, path string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Function.String()+path, nil)
	if err != nil {
		return err
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", n.Function, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// RTT measures the round trip from one node to another, by a connection that is made.
func (b *Bed) RTT(ctx context.Context, from, to Node) (took time.Duration, err error) {
	err = nsthread.Run(from.Namespace, func() error {
		began := time.Now()
		conn, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", to.Function.String())
		if err != nil {
			return err
		}
		took = time.Since(began)
		return conn.Close()
	})
	return took, err
}
