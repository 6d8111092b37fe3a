package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/shim/runtime"
)

const (
	bySystemd = `{"linux":{"cgroupsPath":"kubepods-pod1.slice:cri-containerd:a"}}`
	byPath    = `{"linux":{"cgroupsPath":"/kubepods/pod1/a"}}`
)

// sent is m as containerd sends it.
func sent(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := typeurl.MarshalAnyToProto(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Whatever form the operator's options come in, runc's service gets its own.
func TestRuncGetsItsOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("BinaryName = \"/opt/crun\"\nSystemdCgroup = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	body := func(text string) proto.Message { return &runtimeoptions.Options{ConfigBody: []byte(text)} }
	tests := map[string]struct {
		options proto.Message // nil: none
		config  string
		want    *options.Options // nil: none
		fails   string
	}{
		"none":                         {config: byPath},
		"none, systemd":                {config: bySystemd, want: &options.Options{SystemdCgroup: true}},
		"none, broken bundle":          {config: "{"},
		"runc's own":                   {options: &options.Options{BinaryName: "crun", Root: "/r"}, config: bySystemd, want: &options.Options{BinaryName: "crun", Root: "/r"}},
		"body":                         {options: body("BinaryName = 'crun'\nNoPivotRoot = true\nIoUid = 7\n"), config: byPath, want: &options.Options{BinaryName: "crun", NoPivotRoot: true, IoUid: 7}},
		"body, systemd":                {options: body("BinaryName = 'crun'"), config: bySystemd, want: &options.Options{BinaryName: "crun", SystemdCgroup: true}},
		"body says no systemd":         {options: body("SystemdCgroup = false"), config: bySystemd, want: &options.Options{}},
		"body with what is not runc's": {options: body("BinaryName = 'crun'\nSnapshotter = 'x'\n[more]\na = 1\n"), config: byPath, want: &options.Options{BinaryName: "crun"}},
		"body of runc's type":          {options: &runtimeoptions.Options{TypeUrl: "containerd.runc.v1.Options", ConfigBody: []byte("BinaryName='crun'")}, config: byPath, want: &options.Options{BinaryName: "crun"}},
		"file":                         {options: &runtimeoptions.Options{ConfigPath: file}, config: byPath, want: &options.Options{BinaryName: "/opt/crun", SystemdCgroup: true}},
		"file before body":             {options: &runtimeoptions.Options{ConfigPath: file, ConfigBody: []byte("BinaryName='x'")}, config: byPath, want: &options.Options{BinaryName: "/opt/crun", SystemdCgroup: true}},

		"no file":            {options: &runtimeoptions.Options{ConfigPath: "/nonexistent"}, fails: "/nonexistent"},
		"file without end":   {options: &runtimeoptions.Options{ConfigPath: "/dev/zero"}, fails: "over 65536 bytes"},
		"no TOML":            {options: body("BinaryName"), fails: "not those of runc"},
		"a number as binary": {options: body("BinaryName = 1"), fails: "not those of runc"},
		"another's type":     {options: &runtimeoptions.Options{TypeUrl: "runsc", ConfigBody: []byte("a=1")}, fails: "runsc"},
		"another message":    {options: &taskAPI.StartRequest{ID: "a"}, fails: "StartRequest"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			ctx, _ := logged(t)
			r := &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, tt.config)}
			if tt.options != nil {
				r.Options = sent(t, tt.options)
			}
			_, err := newService(inner, filepath.Join(directory(t), "away"), "test").Create(ctx, r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) || !errdefs.IsInvalidArgument(errgrpc.ToNative(err)) || len(inner.calls) != 0 {
					t.Errorf(
						"%v, and runc was called with %v; want a refusal that names %s", err, inner.calls, tt.fails,
					)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if tt.want != nil {
				want = tt.want
			}
			got, err := typeurl.UnmarshalAny(inner.options) // as runc's service does
			if inner.options == nil {
				got, err = nil, nil
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
				t.Errorf("error %v, options (-want +got):\n%s", err, diff)
			}
		})
	}
}

// FuzzOptions: the options come from a file of the operator's.
func FuzzOptions(f *testing.F) {
	f.Add("containerd.runc.v1.Options", []byte{0x32, 1, 'a'}, "BinaryName = 'a'")
	f.Add("runtimeoptions.v1.Options", []byte{}, "SystemdCgroup = true\n[a]\nb = [1]")
	f.Fuzz(func(t *testing.T, name string, value []byte, text string) {
		if o, err := runtime.RuncOptions(&anypb.Any{TypeUrl: name, Value: value}, true); (o == nil) != (err != nil) {
			t.Errorf("%v, %v", o, err)
		}
		body := sent(t, &runtimeoptions.Options{ConfigBody: []byte(text)})
		if o, err := runtime.RuncOptions(body, true); (o == nil) != (err != nil) {
			t.Errorf("%v, %v", o, err)
		}
	})
}
