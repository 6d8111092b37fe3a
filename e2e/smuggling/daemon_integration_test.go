//go:build integration

// Package smuggling tests that Envoy, the daemon and the function agree on where requests begin and end,
// and what they say: what one of them sees, a client could else hide from another.
package smuggling

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// names are the functions: on a socket that records, on the servers of Go and Python, and one that has its
// body as its input.
var names = []string{"raw", "go", "python", "body"}

func host(name string) string { return name + ".example" }

// daemon is a real ingress, with functions.
type daemon struct {
	socket    string
	functions map[string]function
	busy      count // requests in its hands

	mu   sync.Mutex
	came []*parked
}

// parked is a request as the daemon has understood it, with the id that it has given it.
type parked struct {
	request
	id string
}

func startDaemon(t testing.TB, socket string) *daemon {
	d := &daemon{socket: socket, functions: map[string]function{"raw": rawFunction(t), "go": goFunction(t), "python": pythonFunction(t), "body": rawFunction(t)}}
	buf, err := buffer.Open(filepath.Join(t.TempDir(), "buffer"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	memory := func(string, string) (source.Source, error) { return &sourcetest.Memory{}, nil }
	e := objects.New(objects.Config{Sources: memory, Buffer: buf})
	functions := ingress.NewFunctions()
	var list []*nodeapi.Function
	for _, name := range names {
		list = append(list, &nodeapi.Function{Name: "default/" + name, Hosts: []string{host(name)}, BodyInput: name == "body",
			InputLimit: 1 << 20, RequestTimeout: durationpb.New(patience), ReadyTimeout: durationpb.New(patience)})
	}
	functions.Set(list)
	in := ingress.New(ingress.Config{Node: "edge", Functions: functions, ControlPlane: d, Instances: d, Objects: e, Peers: http.DefaultTransport,
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
	gateway := in.Gateway()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- serve.HTTP(ctx, d.noting(gateway), time.Second, slog.New(slog.DiscardHandler), serve.H2C)(l)
	}()
	t.Cleanup(func() {
		stop()
		in.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// noting notes what comes to the ingress.
func (d *daemon) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.busy.add(1)
		defer d.busy.add(-1)
		p := &parked{request: understood(r)}
		p.Whole = r.Body == http.NoBody
		d.mu.Lock()
		d.came = append(d.came, p)
		d.mu.Unlock()
		if !p.Whole {
			r.Body = noted{r.Body, func(read []byte, whole bool) {
				d.mu.Lock()
				defer d.mu.Unlock()
				p.Body += string(read)
				p.Whole = p.Whole || whole
			}}
		}
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			p.id, p.Trailer = w.Header().Get(filterapi.HeaderRequest), lower(r.Trailer)
		}()
		next.ServeHTTP(w, r)
	})
}

// Activate, Hold and Event are the control plane's.
func (d *daemon) Activate(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
	return &nodeapi.Bound{Request: a.GetRequest(), Instance: strings.TrimPrefix(a.GetFunction(), "default/"), Node: "edge"}, nil
}
func (d *daemon) Hold(string, int32)   {}
func (d *daemon) Event(*nodeapi.Event) {}

// The instances'.
func (d *daemon) Ready(_ context.Context, id string) (sandboxes.Endpoint, error) {
	return sandboxes.Endpoint{Address: d.functions[id].address}, nil
}
func (d *daemon) Inputs(string) (*staging.Dir, bool)               { return nil, true }
func (d *daemon) Serving(string) (ids []string, _ <-chan struct{}) { return nil, nil }
func (d *daemon) IsClosed(string) bool                             { return false }
func (d *daemon) Replace(string)                                   {}

// idle is how long a client waits for more, as nobody tells it that no more comes.
const idle = 20 * time.Millisecond

// send sends bytes by a connection of their own, and returns the answers. due: how many are known to come.
// leave: it does not wait for any.
func (d *daemon) send(t testing.TB, network, address string, data []byte, due int, leave bool) (answers []byte) {
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := time.Now().Add(patience)
	_ = c.SetDeadline(end)
	if _, err := c.Write(data); err != nil || leave {
		return nil
	}
	part, late := make([]byte, 32<<10), time.Now().Add(10*idle)
	for {
		_ = c.SetReadDeadline(time.Now().Add(idle))
		n, err := c.Read(part)
		answers = append(answers, part[:n]...)
		waits := bytes.Count(answers, []byte("HTTP/1.1 ")) < due && time.Now().Before(end) || !d.busy.none() && time.Now().Before(late)
		if errors.Is(err, os.ErrDeadlineExceeded) && waits {
			continue
		}
		if err != nil {
			return answers
		}
	}
}

// arrived are the requests that have come since it was asked last.
func (d *daemon) arrived() []*parked {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.came
	d.came = nil
	return all
}

// check compares what the daemon has understood with what the functions have, and the answers with both.
// It returns both.
func (d *daemon) check(t testing.TB, answers []byte) (came, seen []request) {
	t.Helper()
	if !until(d.busy.none) {
		t.Fatal("a request stays in the daemon's hands")
	}
	all := d.arrived()
	for _, name := range names {
		of, err := d.functions[name].seen()
		if err != nil {
			t.Fatalf("the function %s: %v", name, err)
		}
		seen = append(seen, of...)
	}
	left := slices.Clone(all)
	for _, got := range seen {
		its := func(p *parked) bool { return p.id == got.id() }
		at := slices.IndexFunc(left, its)
		if at < 0 && until(d.busy.none) { // its client has left before the daemon took it up
			late := d.arrived()
			all, left = append(all, late...), append(left, late...)
			at = slices.IndexFunc(left, its)
		}
		if at < 0 {
			t.Fatalf("a function has a request that the daemon has not: %+v", got)
		}
		if d := same(left[at].request, got); d != "" {
			t.Fatal(d)
		}
		left = slices.Delete(left, at, at+1)
		for _, name := range slices.Concat(slices.Collect(maps.Keys(got.Header)), slices.Collect(maps.Keys(got.Trailer))) {
			ours := name == filterapi.HeaderRequest || name == filterapi.HeaderDepth
			if strings.HasPrefix(name, filterapi.HeaderPrefix) && (!ours || got.Trailer[name] != nil) {
				t.Fatalf("a function has the header %s", name)
			}
		}
	}
	checkAnswers(t, all, answers)
	for _, p := range all {
		came = append(came, p.request)
	}
	return came, seen
}

var (
	answerID   = regexp.MustCompile(`(?im)^x-headstart-request: ([0-9a-f]{32})\r$`)
	answerEcho = regexp.MustCompile(`(?im)^x-echo: ([0-9a-f]{32})\r$`)
)

// checkAnswers: they are in the order of their requests, and each has its own function's words.
func checkAnswers(t testing.TB, of []*parked, answers []byte) {
	t.Helper()
	for one := range strings.SplitSeq(string(answers), "HTTP/1.1 ") {
		id, echo := answerID.FindStringSubmatch(one), answerEcho.FindStringSubmatch(one)
		if id == nil {
			continue
		}
		at := slices.IndexFunc(of, func(p *parked) bool { return p.id == id[1] })
		if at < 0 || echo != nil && echo[1] != id[1] {
			t.Fatalf("an answer is out of its order, or another's: %q", answers)
		}
		of = of[at+1:]
	}
}

// fill has the data be for a function's host.
func fill(data []byte, name string) []byte {
	return []byte(strings.ReplaceAll(string(data), "HOST", host(name)))
}
