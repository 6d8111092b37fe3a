// Package xdsscale measures the control plane alone: how soon a change has reached the
// last of a thousand nodes, and what each of them costs. A node is what its daemon is to
// the control plane: a real gRPC connection over mutual TLS, with a stream of endpoints and
// another one of what to expect of them. All nodes are in a second process on the same
// machine, so that the first one's CPU time and memory are the control plane's.
package xdsscale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// Options say how much of everything there is.
type Options struct {
	Clients int
	// Functions times Endpoints are ready; each node has a row of its own for each
	// function.
	Functions, Endpoints int
	// Changes are made of each kind.
	Changes int
	Seed    uint64
	// Command is a program and its arguments that calls Clients with its standard input
	// and output.
	Command []string
	// Dir is for certificates.
	Dir string
}

// The figures, by name. Those of time and CPU are of a change that all clients hear of, by both
// of their streams: a client has it when it has heard of both.
const (
	P50 = "xds_p50_ms" // of the changes, until the last client has it
	P99 = "xds_p99_ms"
	// AddedP99 is P99 of an endpoint that is added or taken away, WeightP99 that of a
	// weight: P99 is the worse one of them.
	AddedP99  = "xds_added_p99_ms"
	WeightP99 = "xds_weight_p99_ms"
	// OneP99 is of a change to one node's row: until this node has it, while nobody else
	// hears of it.
	OneP99 = "xds_one_row_p99_ms"
	// CPU is the control plane's per client and change, and Bytes what it sends to one, by both
	// streams together.
	CPU   = "xds_cpu_us"
	Bytes = "xds_sent_bytes"
	// Heap is what a connected client takes of the control plane's memory after a garbage
	// collection, stacks included; Resident is what the process has grown by.
	Heap     = "xds_heap_kib"
	Resident = "xds_resident_kib"
	// First is from the first client's connection until all have all endpoints, and what to
	// expect of them.
	First    = "xds_first_s"
	FirstCPU = "xds_first_cpu_ms" // of the control plane per client
)

const (
	// weightTotal is the sum of a row.
	weightTotal = 10_000
	// farthest is the longest round trip, and slowest the longest time of service.
	farthest, slowest = 100 * time.Millisecond, 10 * time.Millisecond
)

// patience bounds each wait for the clients.
const patience = 5 * time.Minute

// serverName is in the control plane's certificate.
const serverName = "controlplane"

// Measure returns the figures.
func Measure(ctx context.Context, o Options) (_ map[string]float64, err error) {
	w := newWorld(o)
	s, err := w.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.update(); err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	settle()
	before := take()
	began := time.Now()
	if err := s.startClients(ctx); err != nil {
		return nil, err
	}
	a, err := s.await(w.version, o.Clients)
	if err != nil {
		return nil, err
	}
	settle()
	after := take()
	figures[First] = time.Unix(0, a.Last).Sub(began).Seconds()
	figures[FirstCPU] = ms(after.cpu-before.cpu) / float64(o.Clients)
	figures[Heap] = float64(after.heap-before.heap) / 1024 / float64(o.Clients)
	figures[Resident] = float64(after.resident-before.resident) / 1024 / float64(o.Clients)

	var all []time.Duration
	var cpu time.Duration
	var bytes int
	for _, kind := range []struct {
		name    string
		clients int
		change  func()
	}{
		{AddedP99, o.Clients, w.addOrRemove}, {WeightP99, o.Clients, w.reweigh}, {OneP99, 1, w.reweighOne},
	} {
		var took []time.Duration
		for range o.Changes {
			kind.change() // what signals and weights would have done
			before, began := take(), time.Now()
			if err := s.update(); err != nil {
				return nil, err
			}
			a, err := s.await(w.version, kind.clients)
			if err != nil {
				return nil, err
			}
			took = append(took, time.Unix(0, a.Last).Sub(began))
			if kind.clients == o.Clients {
				cpu, bytes = cpu+take().cpu-before.cpu, bytes+a.Bytes
			}
		}
		if kind.clients == o.Clients {
			all = append(all, took...)
		}
		figures[kind.name] = ms(quantile(took, 0.99))
	}
	figures[P50] = ms(quantile(all, 0.5))
	figures[P99] = max(figures[AddedP99], figures[WeightP99])
	figures[CPU] = float64(cpu.Microseconds()) / float64(len(all)*o.Clients)
	figures[Bytes] = float64(bytes) / float64(len(all)*o.Clients)
	return figures, nil
}

// world is what the control plane knows.
type world struct {
	o       Options
	random  *rand.Rand
	state   platform.State
	weights routing.Weights
	version uint64 // the number of changes that were published
	spare   []platform.Instance
}

func newWorld(o Options) *world {
	w := &world{
		o: o, random: rand.New(rand.NewPCG(o.Seed, 0)), weights: routing.Weights{}, version: uint64(o.Functions),
	}
	for i := range o.Functions {
		f := platform.Function{Name: fmt.Sprintf("default/function-%d", i), Service: fmt.Sprintf("function-%d.default.svc.cluster.local", i), ServicePort: 80}
		w.state.Functions = append(w.state.Functions, f)
		m := &routing.Matrix{Rows: map[string]routing.Row{}}
		for j := range o.Endpoints {
			a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), 8080)
			m.Endpoints = append(m.Endpoints, a)
			w.state.Instances = append(w.state.Instances, platform.Instance{
				ID: a.String(), Function: f.Name, Phase: platform.Ready, Address: a,
			})
		}
		for c := range o.Clients {
			m.Rows[fmt.Sprintf(nodeName, c)] = w.row()
		}
		w.weights[f.Name] = m
	}
	return w
}

// row is a node's: no two are the same, and most of it goes to few endpoints, the rest
// being too far away.
func (w *world) row() routing.Row {
	row := routing.Row{Weights: make([]uint32, w.o.Endpoints), Expected: make([]filterapi.Expected, w.o.Endpoints)}
	for left := uint32(weightTotal); left > 0; {
		n := min(w.random.Uint32N(weightTotal/8)+1, left)
		row.Weights[w.random.IntN(len(row.Weights))] += n
		left -= n
	}
	for j := range row.Expected {
		workers := 1 + w.random.IntN(8)
		row.Expected[j] = filterapi.Expected{
			RTT:     time.Duration(w.random.Int64N(int64(farthest))),
			Service: time.Duration(w.random.Int64N(int64(slowest))),
			Workers: float64(workers),
			Others:  w.random.Float64() * float64(workers),
		}
	}
	return row
}

// heavier returns a row that is different in one endpoint: it gets more requests, and has more
// of others.
func (w *world) heavier(row routing.Row, j int) routing.Row {
	row = routing.Row{Weights: slices.Clone(row.Weights), Expected: slices.Clone(row.Expected)}
	row.Weights[j] += 1 + w.random.Uint32N(weightTotal/8)
	row.Expected[j].Others++
	return row
}

// some returns one of the functions, and its weights in a copy that may be changed.
func (w *world) some() *routing.Matrix {
	name := w.state.Functions[w.random.IntN(len(w.state.Functions))].Name
	old := w.weights[name]
	m := &routing.Matrix{Endpoints: old.Endpoints, Rows: make(map[string]routing.Row, len(old.Rows))}
	for node, row := range old.Rows {
		m.Rows[node] = row
	}
	w.weights[name] = m
	w.version++
	return m
}

// reweigh changes the weight of one endpoint in all rows.
func (w *world) reweigh() {
	m := w.some()
	j := w.random.IntN(len(m.Endpoints))
	for node, row := range m.Rows {
		m.Rows[node] = w.heavier(row, j)
	}
}

// reweighOne changes it in the row of one node.
func (w *world) reweighOne() {
	m := w.some()
	node := fmt.Sprintf(nodeName, w.random.IntN(w.o.Clients))
	m.Rows[node] = w.heavier(m.Rows[node], w.random.IntN(len(m.Endpoints)))
}

// addOrRemove takes an instance away, or brings back the one that was taken away last.
func (w *world) addOrRemove() {
	w.version++
	w.state.Instances = slices.Clone(w.state.Instances)
	if n := len(w.spare); n > 0 {
		w.state.Instances = append(w.state.Instances, w.spare[n-1])
		w.spare = w.spare[:n-1]
		return
	}
	i := w.random.IntN(len(w.state.Instances))
	w.spare = append(w.spare, w.state.Instances[i])
	w.state.Instances = slices.Delete(w.state.Instances, i, i+1)
}

// served is the control plane with its clients.
type served struct {
	world   *world
	server  *xds.Server
	grpc    *grpc.Server
	serving sync.WaitGroup
	config  ClientsConfig

	clients  *exec.Cmd
	tell     io.WriteCloser
	arrivals chan arrival
	reading  sync.WaitGroup
}

func (w *world) serve(ctx context.Context) (*served, error) {
	authority, err := pki.New(w.o.Dir)
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(serverName, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return nil, err
	}
	nodes, err := authority.Issue("node", netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return nil, err
	}
	serverTLS, _, err := peertls.Load(files.Cert, files.Key, files.CA)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &served{world: w, arrivals: make(chan arrival, 1)}
	s.server = xds.New(xds.Config{Endpoints: platform.Function.AssignmentName,
		IngressSocket: "/run/headstart/gateway/ingress.sock", Cluster: istio.ClusterOf,
		Verify: func(ctx context.Context, _ string) error {
			_, err := peertls.Peer(ctx) // one certificate has to do for all nodes
			return err
		}}, slog.New(slog.DiscardHandler))
	s.grpc = grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(serverTLS)))...)
	s.server.Register(s.grpc)
	s.serving.Go(func() { _ = s.grpc.Serve(l) }) // the clients see it if it fails
	s.config = ClientsConfig{Address: l.Addr().String(), Name: serverName, Cert: nodes.Cert, Key: nodes.Key, CA: nodes.CA, Clients: w.o.Clients}
	return s, nil
}

func (s *served) update() error { return s.server.Update(s.world.state, s.world.weights) }

func (s *served) startClients(ctx context.Context) error {
	s.clients = exec.CommandContext(ctx, s.world.o.Command[0], s.world.o.Command[1:]...)
	s.clients.Stderr = os.Stderr
	in, err := s.clients.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.clients.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.clients.Start(); err != nil {
		return fmt.Errorf("starting the clients: %w", err)
	}
	s.tell = in
	s.reading.Go(func() {
		defer close(s.arrivals)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a arrival
			if json.Unmarshal(lines.Bytes(), &a) != nil {
				return
			}
			s.arrivals <- a
		}
	})
	return json.NewEncoder(in).Encode(s.config)
}

// await returns when the last of so many clients has a version.
func (s *served) await(version uint64, clients int) (arrival, error) {
	if err := json.NewEncoder(s.tell).Encode(arrival{Version: version, Clients: clients}); err != nil {
		return arrival{}, fmt.Errorf("asking the clients: %w", err)
	}
	select {
	case a, ok := <-s.arrivals:
		if !ok {
			return a, errors.New("the clients have ended")
		}
		if a.Version != version || a.Clients != clients {
			return a, fmt.Errorf("version %d is at %d clients, want version %d at %d", a.Version, a.Clients, version, clients)
		}
		return a, nil
	case <-time.After(patience):
		return arrival{}, fmt.Errorf("waited %v in vain for version %d at %d clients", patience, version, clients)
	}
}

func (s *served) close() (err error) {
	if s.tell != nil {
		err = s.tell.Close() // which is the clients' end
		for range s.arrivals {
		}
		s.reading.Wait()
		err = errors.Join(err, s.clients.Wait())
	}
	s.grpc.Stop()
	s.serving.Wait()
	return err
}

// usage is what this process has taken.
type usage struct {
	cpu            time.Duration
	heap, resident int64 // bytes
}

func take() usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // fails for unknown arguments only
	u := usage{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano())}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap = int64(m.HeapAlloc + m.StackInuse)
	var pages int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscanf(string(text), "%d %d", new(int64), &pages)
	}
	u.resident = pages * int64(os.Getpagesize())
	return u
}

// settle lets the garbage go.
func settle() {
	runtime.GC()
	runtime.GC() // what the first one's finalizers and pools held
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile is by the nearest rank.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}
