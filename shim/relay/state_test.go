package relay

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
)

// A daemon that starts without the control plane serves what it knew.
func TestEndpointsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.pb")
	r := newRig(t, path)
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "f1", "10.0.0.1"), assigned(t, plain, "p1", "10.0.0.9"))
	u.accepted([]string{plain}, assigned(t, fire, "f2", "10.0.0.2"))
	r.stop()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the file's mode is %v", info.Mode())
	}

	again := newRig(t, path)
	again.eds().subscribe(fire, plain).want(fire + " 10.0.0.2") // the control plane says nothing
	if got := again.controlPlane.accept(t).recv().GetInitialResourceVersions(); len(got) != 1 || got[fire] != "f2" {
		t.Errorf("the relay says that it has %v", got)
	}
}

func TestUnusableStateIsIgnored(t *testing.T) {
	good, err := encode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{assigned(t, fire, "1", "10.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	misnamed, err := encode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{{Name: plain, Resource: assigned(t, fire, "1", "10.0.0.1").GetResource()}}})
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, data := range map[string][]byte{
		"empty": {}, "cut short": good[:len(good)-1], "a bit flipped": flipped, "wrong inside": misnamed, "text": bytes.Repeat([]byte("text"), 100),
	} {
		path := filepath.Join(t.TempDir(), "endpoints.pb")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := newRelay(t, nil, path, nil); r.kind(resource.EndpointType).len() != 0 {
			t.Errorf("%s: the relay has %d assignments", name, r.kind(resource.EndpointType).len())
		}
	}
	path := t.TempDir() // a directory
	if r := newRelay(t, nil, path, nil); r.kind(resource.EndpointType).len() != 0 {
		t.Error("a directory is read")
	}
}

// Many changes are few writes, and the last one is not lost.
func TestStateIsWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "endpoints.pb")
		r := newRelay(t, nil, path, nil)
		done := make(chan struct{})
		ctx, cancel := contextFor(t)
		go func() { defer close(done); r.keep(ctx) }()
		change := func(version string) {
			if err := r.kind(resource.EndpointType).apply(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{assigned(t, fire, version, "10.0.0.1")}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		onDisk := func() string {
			s, err := stateFile(path).load()
			if err != nil {
				t.Fatal(err)
			}
			return s.GetResources()[0].GetVersion()
		}
		change("1")
		change("2")
		change("3")
		if got := onDisk(); got != "1" {
			t.Errorf("at once: %s", got)
		}
		pass(saveInterval)
		if got := onDisk(); got != "3" {
			t.Errorf("a second later: %s", got)
		}
		change("4")
		cancel()
		<-done
		if got := onDisk(); got != "4" {
			t.Errorf("at the end: %s", got)
		}
	})
}

func FuzzDecode(f *testing.F) {
	good, err := encode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{{Name: "a"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if again, err := encode(r); err != nil || proto.Size(r) > len(again) {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
