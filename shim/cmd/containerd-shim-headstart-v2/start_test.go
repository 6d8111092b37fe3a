package main

import (
	"io"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
)

// The command lines are those of containerd 1.6 and of containerd 2.4.
func TestParse(t *testing.T) {
	tests := map[string]struct {
		args []string
		want arguments
	}{
		"start of 1.6": {
			[]string{"-namespace", "k8s.io", "-address", "/run/c.sock", "-publish-binary", "/usr/bin/containerd", "-id", "a", "-debug", "start"},
			arguments{id: "a", namespace: "k8s.io", address: "/run/c.sock", action: "start", debug: true},
		},
		"start of 2.4": {
			[]string{"-namespace", "default", "-address", "/run/c.sock", "-id", "a", "start"},
			arguments{id: "a", namespace: "default", address: "/run/c.sock", action: "start"},
		},
		"delete": {
			[]string{"-namespace", "default", "-id", "a", "-bundle", "/b", "delete"},
			arguments{id: "a", namespace: "default", action: "delete"},
		},
		"server":         {[]string{"-namespace", "default", "-id", "start", "-address", "start"}, arguments{id: "start", namespace: "default", address: "start"}},
		"short version":  {[]string{"-v"}, arguments{version: true}},
		"long version":   {[]string{"--version"}, arguments{version: true}},
		"info":           {[]string{"-info"}, arguments{}},
		"nothing":        {nil, arguments{}},
		"unknown option": {[]string{"-id", "a", "-future", "start"}, arguments{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parse(tt.args), cmp.AllowUnexported(arguments{})); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBootstrapProtocol(t *testing.T) {
	a := arguments{id: "a", namespace: "default"}
	tests := map[string]struct {
		input []byte
		want  bool
	}{
		"containerd 2.3 and later":      {marshal(t, &bootapi.BootstrapParams{InstanceID: "a", Namespace: "default"}), true},
		"no options":                    {nil, false},
		"runtime options":               {marshal(t, runcOptions(t)), false},
		"no protobuf":                   {[]byte("\xff\xff"), false},
		"parameters of another sandbox": {marshal(t, &bootapi.BootstrapParams{InstanceID: "b", Namespace: "default"}), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := bootstrap(tt.input, a); got != tt.want {
				t.Errorf("bootstrap = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLegacyParams(t *testing.T) {
	t.Setenv("TTRPC_ADDRESS", "/run/c.sock.ttrpc")
	want := &bootapi.BootstrapParams{
		InstanceID: "a", Namespace: "default", LogLevel: bootapi.LogLevel_LOG_LEVEL_DEBUG,
		ContainerdGrpcAddress: "/run/c.sock", ContainerdTtrpcAddress: "/run/c.sock.ttrpc",
		Extensions: []*bootapi.Extension{{Value: runcOptions(t)}},
	}
	a := arguments{id: "a", namespace: "default", address: "/run/c.sock", debug: true}
	got, err := legacyParams(marshal(t, runcOptions(t)), a)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	var found options.Options
	if ok, err := got.FindExtension(&found); !ok || err != nil || found.GetShimCgroup() != "/shims" {
		t.Errorf("runc's options: %v, %v, %v", &found, ok, err)
	}
}

func TestLegacyParamsRefuses(t *testing.T) {
	whole := arguments{id: "a", namespace: "default"}
	if _, err := legacyParams([]byte("\xff\xff"), whole); err == nil {
		t.Error("took options that are no protobuf")
	}
	for _, a := range []arguments{{id: "a"}, {namespace: "default"}} {
		if _, err := legacyParams(nil, a); err == nil {
			t.Errorf("took %+v", a)
		}
	}
}

func TestReplay(t *testing.T) {
	want := string(make([]byte, 1<<20)) // more than a pipe holds
	f, err := replay([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || string(got) != want {
		t.Errorf("read %d bytes, %v, want the %d that went in", len(got), err, len(want))
	}
}

// FuzzInput holds for everything that can stand on stdin: it is of one protocol or the
// other, or refused.
func FuzzInput(f *testing.F) {
	a := arguments{id: "a", namespace: "default"}
	f.Add([]byte("\n\x01a\x12\x07default"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, input []byte) {
		if bootstrap(input, a) {
			return
		}
		p, err := legacyParams(input, a)
		if err == nil && p.GetInstanceID() != "a" {
			t.Errorf("parameters for %q", p.GetInstanceID())
		}
	})
}

func runcOptions(t *testing.T) *anypb.Any {
	t.Helper()
	o, err := anypb.New(&options.Options{ShimCgroup: "/shims"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
