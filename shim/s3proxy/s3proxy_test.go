package s3proxy

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// pods has a node's pods, and brings them S3 as the server does. It notes what that has said.
type pods struct {
	t    *testing.T
	dir  string
	node *node
	*sandboxes.Kubelet

	sandbox sandboxes.Sandbox
	err     error
}

// Bring implements sandboxes.Provider.
func (p *pods) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	p.sandbox = sb
	var need sandboxes.Need
	need, p.err = p.node.Bring(sb)
	return need, p.err
}

// Release implements sandboxes.Provider.
func (p *pods) Release(id string) { p.node.Release(id) }

func newPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{t: t, dir: filepath.Join(t.TempDir(), "instances")}
	p.daemon()
	t.Cleanup(func() { p.Close() })
	return p
}

// daemon begins another daemon, in place of the one before.
func (p *pods) daemon() {
	p.t.Helper()
	if p.Kubelet != nil {
		p.Close()
	}
	p.node = start(p.t, nil)
	p.err = nil
	var err error
	p.Kubelet, err = sandboxes.OpenKubelet(sandboxes.Config{Dir: p.dir, Providers: []sandboxes.Provider{p},
		Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
}

const podID = "media_pod_uid"

// describe makes a container of a pod, which has S3 of a store, empty for none.
func (p *pods) describe(container, store string) []*nodeapi.Endpoint {
	p.t.Helper()
	described, err := p.Describe(p.t.Context(), &nodeapi.DescribeRequest{Sandbox: container, S3: store,
		Pod: &nodeapi.Pod{Namespace: "media", Name: "pod", Uid: "uid", Container: container}})
	if err != nil {
		p.t.Fatal(err)
	}
	return described.GetEndpoints()
}

func (p *pods) path() string { return filepath.Join(p.dir, podID, directoryName) }

// What is noted of a sandbox survives the daemon: its program goes on with the credentials that it has. Nobody but the
// daemon can read it.
func TestANoteOutlivesTheDaemon(t *testing.T) {
	p := newPods(t)
	first := p.describe("one", testStore)
	if len(first) != 1 || first[0].GetName() != "s3" || first[0].GetEnv()["AWS_REGION"] != testRegion {
		t.Fatalf("described as %v", first)
	}
	if d := cmp.Diff(first[0].GetEnv(), p.describe("two", testStore)[0].GetEnv()); d != "" {
		t.Errorf("another container of the pod (-first +second):\n%s", d)
	}
	before := p.node.sandboxes[podID].note
	for path, mode := range map[string]fs.FileMode{p.path(): 0o700, filepath.Join(p.path(), noteName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	p.daemon()
	after := p.node.sandboxes[podID]
	if after == nil {
		t.Fatalf("the next daemon does not know it: %v", p.err)
	}
	if d := cmp.Diff(before, after.note); d != "" || len(before.Key) != keySize || before.Store != testStore {
		t.Errorf("(-before +after):\n%s", d)
	}
	if after.namespace != "media" || !p.sandbox.Runs() {
		t.Errorf("of namespace %s; it runs: %v", after.namespace, p.sandbox.Runs())
	}
	p.node.Release(podID)
	if n, err := noteOf(p.sandbox); err != nil || cmp.Diff(&before, n) != "" {
		t.Errorf("when another daemon asks again: %v, %v", n, err)
	}
}

// Sandboxes have keys of their own.
func TestNotesDiffer(t *testing.T) {
	a, b := newPods(t), newPods(t)
	one, other := a.describe("one", testStore), b.describe("one", testStore)
	if token := "AWS_CONTAINER_AUTHORIZATION_TOKEN"; one[0].GetEnv()[token] == other[0].GetEnv()[token] {
		t.Error("they have one token")
	}
}

// A sandbox that was made without S3 gets none: its program has not got the variables.
func TestASandboxWithoutS3(t *testing.T) {
	p := newPods(t)
	if got := p.describe("one", ""); len(got) > 0 || p.err != nil {
		t.Errorf("described as %v, %v", got, p.err)
	}
	p.daemon()
	if p.node.sandboxes[podID] != nil || p.err != nil || !p.sandbox.Runs() {
		t.Errorf("the next daemon: %v; it runs: %v", p.err, p.sandbox.Runs())
	}
	if err := os.Mkdir(p.path(), 0o700); err != nil { // as a daemon leaves it that ends before it has noted
		t.Fatal(err)
	}
	p.daemon()
	if p.node.sandboxes[podID] != nil || p.err != nil {
		t.Errorf("without a note: %v", p.err)
	}
	if entries, err := os.ReadDir(p.path()); len(entries) > 0 || err != nil {
		t.Errorf("its directory has %v, %v", entries, err)
	}
}

// A note that cannot be read is told, and not replaced: its program would go on with other credentials.
func TestADamagedNote(t *testing.T) {
	says := func(content string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
	}
	for name, damage := range map[string]func(path string) error{
		"empty":         says(""),
		"cut off":       func(path string) error { return os.Truncate(path, 20) },
		"no JSON":       says("x"),
		"nothing in it": says("{}"),
		"null":          says("null"),
		"no key":        says(`{"store":"default"}`),
		"a short key":   says(`{"store":"default","key":"AAAA"}`),
		"a directory":   func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			p.describe("one", testStore)
			path := filepath.Join(p.path(), noteName)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			damaged, _ := os.ReadFile(path)
			p.daemon()
			if p.err == nil || p.node.sandboxes[podID] != nil {
				t.Errorf("the next daemon: %v", p.err)
			}
			if got := p.describe("two", testStore); len(got) > 0 || p.err == nil {
				t.Errorf("another container is described as %v, %v", got, p.err)
			}
			if after, _ := os.ReadFile(path); !slices.Equal(damaged, after) {
				t.Errorf("the note is %q", after)
			}
		})
	}
}

// Of a store that the namespace may not use the program hears when it asks, and not that it has no region.
func TestBringWithoutAStore(t *testing.T) {
	p := newPods(t)
	p.node.config.Store = func(string, string) (Store, error) {
		return nil, problem.New(http.StatusForbidden, "StoreNotAllowed", "", "no")
	}
	got := p.describe("one", "forbidden")
	if got[0].GetEnv()["AWS_REGION"] == "" || p.err != nil || got[0].GetEnv()["AWS_ENDPOINT_URL_S3"] == "" {
		t.Errorf("described as %v, %v", got, p.err)
	}
}

// A container that goes without is told to the function's owner, by the variable that is to go.
func TestLeft(t *testing.T) {
	for left, says := range map[string]string{
		"AWS_ENDPOINT_URL_S3": "a container has AWS_ENDPOINT_URL_S3 of its own, and uses that; remove it from the " +
			"container",
		"AWS_PROFILE": "a container has AWS_PROFILE of its own, and uses that; remove it from the container",
		"hostNetwork": "a pod with hostNetwork has no loopback of its own; remove hostNetwork: true",
	} {
		n := start(t, nil)
		n.Left(endpoints.Offer{Sandbox: "a", Name: name, Left: left})
		if len(n.events) != 1 {
			t.Fatalf("%s: %v", left, n.events)
		}
		e := n.events[0]
		want := &nodeapi.Event{Function: testFunction, Reason: "EndpointLeftAlone", Field: "headstart.dev/s3",
			Message: "S3 on the node is not used: " + says}
		if !proto.Equal(want, e) {
			t.Errorf("%s: %v", left, e)
		}
		if log := n.log(); !strings.Contains(log, "instance=a") || !strings.Contains(log, says) {
			t.Errorf("%s: the log is %s", left, log)
		}
	}
	n := start(t, func(c *Config) { c.Function = func(string) string { return "" } })
	n.Left(endpoints.Offer{Sandbox: "a", Left: "hostNetwork"})
	if len(n.events) > 0 || n.log() == "" {
		t.Errorf("of no function: %v", n.events)
	}
}

// Until the control plane has said whose instance a sandbox is, it has its objects in a name of its own.
func TestFunction(t *testing.T) {
	n := start(t, func(c *Config) {
		c.Function = func(id string) string {
			if id == "known" {
				return testFunction
			}
			return ""
		}
	})
	if f := n.function(n.box("known")); f != testFunction {
		t.Errorf("a known one has %s", f)
	}
	if f := n.function(n.box("unknown")); f != "media/unknown" {
		t.Errorf("an unknown one has %s", f)
	}
}

// Offers of other endpoints, and of sandboxes that nobody knows, are not served. A sandbox that another daemon has
// described is adopted.
func TestFind(t *testing.T) {
	var n *node
	adopts := 0
	n = start(t, func(c *Config) {
		c.Adopt = func(id string) error {
			adopts++
			switch id {
			case "adopted":
				n.box(id)
			case "without":
			default:
				return errors.New("nobody knows it")
			}
			return nil
		}
	})
	own := n.box("own")
	for _, in := range []struct {
		offer  endpoints.Offer
		adopts int
		found  bool
	}{
		{endpoints.Offer{Sandbox: "own", Name: "s3"}, 0, true},
		{endpoints.Offer{Sandbox: "own", Name: "other"}, 0, false},
		{endpoints.Offer{Sandbox: "adopted", Name: "s3"}, 1, true},
		{endpoints.Offer{Sandbox: "without", Name: "s3"}, 1, false},
		{endpoints.Offer{Sandbox: "unknown", Name: "s3"}, 1, false},
	} {
		adopts = 0
		sb, err := n.find(in.offer)
		other := in.offer.Sandbox == "own" && in.found && sb != own
		if (sb != nil) != in.found || (err == nil) != in.found || adopts != in.adopts || other {
			t.Errorf("%+v: %v, %v, adopted %d times", in.offer, sb, err, adopts)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Serve(t.Context(), endpoints.Offer{Sandbox: "unknown", Name: "s3"}, l)
	if err := l.Close(); !errors.Is(err, net.ErrClosed) || !strings.Contains(n.log(), "nobody knows it") {
		t.Errorf("its listener is closed: %v; the log is %s", err, n.log())
	}
}
