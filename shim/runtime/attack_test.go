package runtime_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A compromised daemon has no variable in a program that the program, its loader or its shell acts
// on, and no answer that a specification cannot hold.
func TestAttackOfTheDaemonByDescriptions(t *testing.T) {
	long := strings.Repeat("a", 32<<10)
	for name, d := range map[string]*nodeapi.DescribeResponse{
		"loader":      {Env: map[string]string{"LD_PRELOAD": "/headstart/input/x.so"}},
		"shell":       {Env: map[string]string{"BASH_ENV": "/headstart/input/x.sh"}},
		"hidden":      {Env: map[string]string{"HEADSTART_A=1\x00LD_PRELOAD": "/headstart/input/x.so"}},
		"smuggled":    {Env: map[string]string{"HEADSTART_A": "1\x00LD_PRELOAD=/headstart/input/x.so"}},
		"too much":    {Env: map[string]string{"HEADSTART_A": long, "HEADSTART_B": long, "HEADSTART_C": long}},
		"descriptors": {Descriptors: []string{"a:b"}},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			s := newService(inner, daemonSocket(t, answer(d)), "test")
			if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, plain)}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain, inner.config); diff != "" {
				t.Errorf("config.json that runc saw (-want +got):\n%s", diff)
			}
		})
	}
}

// What is no text is no answer.
func TestAttackOfTheDaemonByBytes(t *testing.T) {
	d := &nodeapi.DescribeResponse{}
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "HEADSTART_A")
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), []byte("\xff\xfe"))
	field := d.ProtoReflect().Descriptor().Fields().ByName("env").Number()
	// Go keeps what it does not know as it is; the number is known to the one who reads.
	d.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), entry))
	inner := &runc{}
	s := newService(inner, daemonSocket(t, answer(d)), "test")
	ctx, hook := logged(t)
	if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, plain)}); err != nil {
		t.Fatal(err)
	}
	if entry := hook.LastEntry(); inner.config != plain || entry == nil || entry.Data["reason"] != "DescribeFailed" {
		t.Errorf("runc saw %s; log entry %+v", inner.config, entry)
	}
}

// The shim is in the node's network, where its daemon is not: it connects for the daemon to nothing there.
func TestAttackOfTheDaemonOnTheNodesNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	for _, target := range []string{l.Addr().String(), "dns:///" + l.Addr().String(), "passthrough:///" + l.Addr().String()} {
		s := newService(&runc{}, daemonSocket(t, answer(&nodeapi.DescribeResponse{
			OtlpTarget: target, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		})), "test")
		for _, err := range []error{create(t, s), start(t, s), s.Close(t.Context())} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	l.Close()
	if err := <-accepted; err == nil {
		t.Error("the shim connects to what the daemon names")
	}
}

func create(t *testing.T, s taskAPI.TTRPCTaskService) error {
	_, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, plain)})
	return err
}

func start(t *testing.T, s taskAPI.TTRPCTaskService) error {
	_, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"})
	return err
}

// What the daemon says of a job ends in an event of the job's owner, as one short line.
func TestAttackOfTheDaemonByItsWords(t *testing.T) {
	s, _ := created(t, jobSocket(t, func(context.Context, *nodeapi.StageRequest) error {
		return status.Error(codes.FailedPrecondition, "see\n\x1b[2J"+strings.Repeat("\u00e9", 1<<15))
	}))
	err := start(t, s)
	if err == nil || len(err.Error()) > 1<<10 || strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("its start says %.2000q", err)
	}
}

// A daemon that stops while it answers, or whose socket leads elsewhere, keeps no sandbox.
func TestAttackOfTheDaemonByItsSocket(t *testing.T) {
	other := filepath.Join(directory(t), "s")
	if err := os.Symlink(serve(t, func(*grpc.Server) {}), other); err != nil {
		t.Fatal(err)
	}
	inner := &runc{}
	if err := create(t, newService(inner, other, "test")); err != nil || inner.config != plain {
		t.Errorf("runc saw %s, %v", inner.config, err)
	}
}
