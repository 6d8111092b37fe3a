package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// expected is what the control plane says of a function.
func expected(t *testing.T, name, version, line string) *discovery.Resource {
	t.Helper()
	return extensionOf(t, name, version, wrapperspb.String(line))
}

func extensionOf(t *testing.T, name, version string, m proto.Message) *discovery.Resource {
	t.Helper()
	inside, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	a, err := anypb.New(&core.TypedExtensionConfig{Name: name, TypedConfig: inside})
	if err != nil {
		t.Fatal(err)
	}
	return &discovery.Resource{Name: name, Version: version, Resource: a}
}

// line is of a cluster with two endpoints.
func line(cluster string, rtt int) string {
	return fmt.Sprintf("%s 10.0.0.1:80,1,%d,4000,2,0 10.0.0.2:80,1,50000,4000,8,0", cluster, rtt)
}

// worker is a route filter that asks what to expect.
type worker struct {
	r     *rig
	known string
}

// want fails unless the worker is told these lines, and nothing before them.
func (w *worker) want(lines ...string) {
	w.r.t.Helper()
	answer := w.ask(w.r.t.Context())
	if got, want := answer.Body.String(), strings.Join(append([]string{"v1 session"}, lines...), "\n")+"\n"; answer.Code != http.StatusOK || got != want {
		w.r.t.Errorf("%d with\n%s, want\n%s", answer.Code, got, want)
	}
}

func (w *worker) ask(ctx context.Context) *httptest.ResponseRecorder {
	q := httptest.NewRequestWithContext(ctx, http.MethodGet, filterapi.ExpectationsPath, http.NoBody)
	q.Header.Set(filterapi.HeaderKnown, w.known)
	answer := httptest.NewRecorder()
	w.r.relay.Expectations().ServeHTTP(answer, q)
	w.known = cmp.Or(answer.Header().Get(filterapi.HeaderVersion), w.known)
	return answer
}

// Gateways get the lines of all functions together, whenever these change.
func TestGatewaysAreToldWhatToExpect(t *testing.T) {
	r := rigOf(t, Config{})
	w := &worker{r: r}
	var first sync.WaitGroup
	first.Go(func() { w.want(line("c1", 1), line("c2", 1)) }) // before anything is known
	u := next(t, r.controlPlane.expectations)
	if first := u.recv(); first.GetNode().GetId() != "edge" || first.GetTypeUrl() != resource.ExtensionConfigType || strings.Join(first.GetResourceNamesSubscribe(), ",") != "*" {
		t.Errorf("the first request is %v", first)
	}
	u.accepted(nil, expected(t, plain, "1", line("c2", 1)), expected(t, fire, "1", line("c1", 1)))
	first.Wait()
	u.accepted(nil, expected(t, fire, "2", line("c1", 2)))
	w.want(line("c1", 2), line("c2", 1))
	u.accepted([]string{plain}, expected(t, "default/wire:80", "1", line("c1", 3))) // another that says it is of c1
	w.want(line("c1", 2))
	u.accepted([]string{fire, "default/wire:80"})
	w.want()
	(&worker{r: r}).want()

	u.end <- errors.New("the control plane restarts")
	u = next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "3", line("c1", 4)))
	w.want(line("c1", 4))
}

// A question that nothing new answers is held, and ends in time: with the gateway, with the daemon, and before the
// filter gives up.
func TestQuestionsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := &rig{t: t, relay: newRelay(t, nil, "", &activities{})}
		if err := r.relay.expectations.apply(&discovery.DeltaDiscoveryResponse{}); err != nil {
			t.Fatal(err)
		}
		r.relay.sources = nil
		w := &worker{r: r}
		if got := w.ask(t.Context()).Body.String(); got != "v1\n" {
			t.Errorf("told %q", got)
		}
		began := time.Now()
		if got := w.ask(t.Context()); got.Code != http.StatusNotModified || time.Since(began) != filterapi.ExpectationsHeld {
			t.Errorf("%d after %v", got.Code, time.Since(began))
		}
		var wg sync.WaitGroup
		left, leave := context.WithCancel(t.Context())
		wg.Go(func() { w.ask(left) })
		synctest.Wait()
		leave()
		wg.Wait()
		wg.Go(func() { r.relay.Run(ctx) })
		wg.Go(func() { w.ask(t.Context()) })
		synctest.Wait()
		stop()
		wg.Wait()
		if took := time.Since(began); took != filterapi.ExpectationsHeld {
			t.Errorf("they end after %v", took)
		}
	})
}

// Weights alone decide where the operator says so, whatever the control plane and the state of before say.
func TestWeightsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.pb")
	r := rigOf(t, Config{StateFile: path})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	r.stop()
	alone := rigOf(t, Config{StateFile: path, WeightsAlone: true})
	if got := (&worker{r: alone}).ask(t.Context()).Body.String(); got != "v1\n" {
		t.Errorf("told %q", got)
	}
	alone.controlPlane.accept(t)
	if n := len(alone.controlPlane.expectations); n != 0 {
		t.Errorf("the control plane is asked %d times", n)
	}
}

// A mesh's gateway gets endpoints and expectations, which are data. Nothing that it may ask for brings it code.
func TestAMeshIsServedNoCode(t *testing.T) {
	r := rigOf(t, Config{})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	v := r.controlPlane.accept(t)
	v.recv()
	v.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	e := r.ads()
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "router~1"}, TypeUrl: resource.ExtensionConfigType, ResourceNamesSubscribe: []string{fire}})
	if got := e.refused(); got != codes.InvalidArgument {
		t.Errorf("the stream ends with %v", got)
	}
}

// A control plane that is older sends no expectations, and endpoints come all the same.
func TestEndpointsComeWithoutExpectations(t *testing.T) {
	r := rigOf(t, Config{})
	next(t, r.controlPlane.expectations).end <- errors.New("unknown service")
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	r.eds().subscribe(fire).want(fire + " 10.0.0.1")
	r.ads().subscribe(fire).want(fire + " 10.0.0.1")
}

// A control plane that always has changes has the daemon compose them seldom. Endpoints are not held back.
func TestExpectationsAreHeldBack(t *testing.T) {
	r := rigOf(t, Config{})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	w := &worker{r: r}
	for rtt := range 3 {
		began := time.Now()
		u.accepted(nil, expected(t, fire, strconv.Itoa(rtt), line("c1", rtt)))
		if took := time.Since(began); took < settling {
			t.Errorf("change %d is taken after %v", rtt, took)
		}
		w.want(line("c1", rtt))
	}
}

// The filter would refuse more endpoints than it may read. Functions that come later go by weight.
func TestMoreThanTheFilterReads(t *testing.T) {
	r := rigOf(t, Config{})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	var all []*discovery.Resource
	var lines []string
	const full = filterapi.MaxRouteTotal / filterapi.MaxRouteEndpoints
	for i := range full + 1 {
		lines = append(lines, fmt.Sprint("c", i)+strings.Repeat(" 10.0.0.1:80,1,2,3,4,5", filterapi.MaxRouteEndpoints))
		all = append(all, expected(t, fmt.Sprint("default/f", i), "1", lines[i]))
	}
	u.accepted(nil, all...)
	(&worker{r: r}).want(lines[:full]...)
	if got := testutil.ToFloat64(r.relay.cfg.Metrics.picked); got != full {
		t.Errorf("%v functions are picked, want %d", got, full)
	}
}

func TestExpectationsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.pb")
	r := rigOf(t, Config{StateFile: path})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	v := r.controlPlane.accept(t)
	v.recv()
	v.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	r.stop()
	again := rigOf(t, Config{StateFile: path})
	(&worker{r: again}).want(line("c1", 1)) // the control plane says nothing
	if got := next(t, again.controlPlane.expectations).recv().GetInitialResourceVersions(); len(got) != 1 || got[fire] != "1" {
		t.Errorf("the relay says that it has %v", got)
	}
	again.stop()
	newRig(t, path).eds().subscribe(fire).want(fire + " 10.0.0.1")
}

func TestWrongExpectationsAreRefused(t *testing.T) {
	r := rigOf(t, Config{})
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	for name, res := range map[string]*discovery.Resource{
		"no line":        expected(t, plain, "1", ""),
		"no endpoint":    expected(t, plain, "1", "c2"),
		"two lines":      expected(t, plain, "1", line("c2", 1)+"\n"+line("c3", 1)),
		"another filter": extensionOf(t, plain, "1", &wasmfilter.Wasm{}),
		"endpoints":      assigned(t, plain, "1", "10.0.0.1"),
		"too many bytes": {Name: plain, Version: strings.Repeat("v", filterapi.MaxConfigBytes), Resource: expected(t, plain, "1", line("c2", 1)).GetResource()},
	} {
		// The good one beside it is not taken either.
		if word := u.send(nil, expected(t, fire, "2", line("c1", 2)), res); word.GetErrorDetail().GetMessage() == "" {
			t.Errorf("%s: the relay's word is %v", name, word)
		}
	}
	(&worker{r: r}).want(line("c1", 1))
}
