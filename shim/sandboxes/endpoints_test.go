package sandboxes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// brought is what a provider knows of a sandbox.
type brought struct {
	ID, Namespace, Function, S3 string
	Job, Runs                   bool
}

// s3Provider has one endpoint for each sandbox, and notes what it knows of them.
type s3Provider struct {
	endpoint *nodeapi.Endpoint

	mu  sync.Mutex
	all []brought
}

func newS3Provider() *s3Provider {
	return &s3Provider{endpoint: &nodeapi.Endpoint{Name: "s3", Env: map[string]string{"AWS_REGION": "eu"}}}
}

func (p *s3Provider) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, brought{sb.ID, sb.Namespace, sb.Function, sb.S3, sb.Job, sb.Runs()})
	return sandboxes.Need{Endpoints: []*nodeapi.Endpoint{p.endpoint}}, nil
}

func (p *s3Provider) Release(string) {}

// wantBrought sees which sandboxes it was asked for since the last time.
func (p *s3Provider) wantBrought(t *testing.T, want ...brought) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := cmp.Diff(want, p.all); diff != "" {
		t.Errorf("brought to (-want +got):\n%s", diff)
	}
	p.all = nil
}

// provides starts the daemon again with these providers.
func (r *podRig) provides(all ...sandboxes.Provider) {
	r.t.Helper()
	r.Close()
	r.configure.Providers = all
	r.open()
}

// describedS3 is the answer to a container of the pod fire-x that asks for a store.
func (r *podRig) describedS3(container, store string) *nodeapi.DescribeResponse {
	r.t.Helper()
	d, err := r.Describe(r.t.Context(), &nodeapi.DescribeRequest{
		Sandbox: container, Pod: pod("fire-x", container), S3: store,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func wantEndpoints(t *testing.T, d *nodeapi.DescribeResponse, want ...*nodeapi.Endpoint) {
	t.Helper()
	if diff := cmp.Diff(want, d.GetEndpoints(), protocmp.Transform()); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// spoil does to an answer what the shim may do.
func spoil(d *nodeapi.DescribeResponse) {
	for _, e := range d.GetEndpoints() {
		e.Name, e.Env["AWS_REGION"], e.Env["AWS_DEFAULT_REGION"] = "spoilt", "spoilt", "spoilt"
	}
	d.Endpoints = d.Endpoints[:0]
}

// What a pod's containers ask for is the provider's to know, and each answer has the endpoints for itself.
func TestAPodAsksForAStore(t *testing.T) {
	p := newS3Provider()
	r := newPodRig(t)
	r.provides(p)
	want := &nodeapi.Endpoint{Name: "s3", Env: map[string]string{"AWS_REGION": "eu"}}
	d := r.describedS3("a", "edge")
	wantEndpoints(t, d, want)
	p.wantBrought(t, brought{ID: one, Namespace: "default", S3: "edge"})
	spoil(d)
	wantEndpoints(t, r.describedS3("b", ""), want)
	p.wantBrought(t, brought{ID: one, Namespace: "default"})
	r.has(podStarting(""))
	r.describedS3("c", "cloud")
	p.wantBrought(t, brought{ID: one, Namespace: "default", Function: "default/fire", S3: "cloud"})
}

// Endpoints of several providers come in their order.
func TestEndpointsOfSeveralProviders(t *testing.T) {
	first, second := newS3Provider(), newS3Provider()
	second.endpoint = &nodeapi.Endpoint{Name: "redis"}
	r := newPodRig(t)
	r.provides(first, &provider{name: "socket"}, second)
	wantEndpoints(t, r.describedS3("a", "edge"), first.endpoint, second.endpoint)
}

// A function's own store is known to the provider, and to the shim by the container's annotation.
func TestAnInstanceAsksForAStore(t *testing.T) {
	for name, store := range map[string]string{"with a store": "edge", "without": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newS3Provider()
				r := newRig(t)
				r.set.Close()
				node := &shimmed{Memory: r.node, specs: map[string]sandboxes.Spec{}}
				r.configure.Providers = []sandboxes.Provider{p}
				set, err := sandboxes.OpenLocal(t.Context(), r.configure, node, func(*nodeapi.InstanceStatus) {})
				if err != nil {
					t.Fatal(err)
				}
				r.set = set
				m := r.message("one", r.serving()...)
				m.Function.S3 = store
				r.set.Start(m)
				r.ready("one")
				p.wantBrought(t, brought{ID: "one", Namespace: "default", Function: function, S3: store})
				annotation, is := node.specs["one"].Annotations[filterapi.AnnotationS3]
				if annotation != store || is != (store != "") {
					t.Errorf("the shim is told of the store %q, %t", annotation, is)
				}
				for range 2 { // its needs are there once
					d, err := r.describe("one")
					if err != nil {
						t.Fatal(err)
					}
					wantEndpoints(t, d, &nodeapi.Endpoint{Name: "s3", Env: map[string]string{"AWS_REGION": "eu"}})
					spoil(d)
				}
				if err := r.set.Adopt("one"); err == nil {
					t.Error("a sandbox of its own is adopted")
				}
				p.wantBrought(t)
			})
		})
	}
}

// A daemon that has not described a pod can take it over from another one.
func TestAdopt(t *testing.T) {
	p := newS3Provider()
	r := newPodRig(t)
	r.configure.Succeeds = true
	r.provides(p)
	other := &podRig{t: t, dir: r.dir, function: r.function}
	other.configure = other.config()
	other.open()
	defer other.Close()
	if err := r.Adopt(one); err == nil {
		t.Error("a pod is adopted that nobody has described")
	}
	p.wantBrought(t)
	other.describedS3("a", "edge")
	job := &nodeapi.DescribeRequest{Sandbox: "b", Pod: pod("digest-x", "b"), Job: true}
	if _, err := other.Describe(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]brought{
		one:                    {ID: one, Namespace: "default", Runs: true},
		"default_digest-x_u-1": {ID: "default_digest-x_u-1", Namespace: "default", Job: true, Runs: true},
	} {
		for range 2 {
			if err := r.Adopt(id); err != nil {
				t.Error(err)
			}
			p.wantBrought(t, want)
		}
	}
	r.has(podStarting("")) // now its function is known
	if err := r.Adopt(one); err != nil {
		t.Error(err)
	}
	p.wantBrought(t, brought{ID: one, Namespace: "default", Function: "default/fire", Runs: true})
}

// An offer's id leads to no directory but a sandbox's.
func TestAdoptOfNoSandbox(t *testing.T) {
	p := newS3Provider()
	r := newPodRig(t)
	r.provides(p)
	outside := filepath.Join(filepath.Dir(r.dir), "outside")
	for _, dir := range []string{filepath.Join(outside, "input"), filepath.Join(r.dir, "input")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := names(t, r.dir)
	for _, id := range []string{"", ".", "..", "../outside", "a/../../outside", outside, "default_other_u-1", "a\x00b",
		strings.Repeat("a", 1000)} {
		if err := r.Adopt(id); err == nil {
			t.Errorf("%.100q is adopted", id)
		}
	}
	p.wantBrought(t)
	if after := names(t, r.dir); !slices.Equal(after, before) {
		t.Errorf("left: %q", after)
	}
}

// What is gone is adopted no more.
func TestAdoptOfAPodThatIsGone(t *testing.T) {
	p := newS3Provider()
	r := newPodRig(t)
	r.provides(p)
	r.describedS3("a", "edge")
	r.gone("a", pod("fire-x", "a"))
	p.wantBrought(t, brought{ID: one, Namespace: "default", S3: "edge"})
	if err := r.Adopt(one); err == nil {
		t.Error("it is adopted")
	}
	p.wantBrought(t)
}

// A local node's sandboxes are all its own daemon's.
func TestAdoptOnALocalNode(t *testing.T) {
	p := newS3Provider()
	r := newRig(t)
	r.configure.Providers = []sandboxes.Provider{p}
	r.restart()
	for _, id := range []string{"", "one", one, strings.Repeat("a", 1000)} {
		if err := r.set.Adopt(id); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.100q: %v", id, err)
		}
	}
	p.wantBrought(t)
	if left := r.files(); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

// After a restart a provider is asked again for what runs, and is told no store: it has noted it.
func TestNeedsOfEndpointsOutliveTheDaemon(t *testing.T) {
	p := newS3Provider()
	r := newPodRig(t)
	r.provides(p)
	r.describedS3("a", "edge")
	p.wantBrought(t, brought{ID: one, Namespace: "default", S3: "edge"})
	r.provides(p)
	p.wantBrought(t, brought{ID: one, Namespace: "default", Runs: true})
}
