package pods

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Shims answers the shims of the node's pods.
type Shims struct {
	nodeapi.UnimplementedSandboxesServer
	Pods *Set
}

// Describe gives every container of a pod that asks its pod's input directory. Whether the
// pod is a function's is not asked: a Service may be annotated later than its pods start.
func (s Shims) Describe(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	if r.GetPod() == nil {
		return nil, status.Error(codes.NotFound, "not a container of a pod")
	}
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	err = s.Pods.dirs.hold(id, r.GetSandbox(), r.GetJob())
	switch {
	case errors.Is(err, errFull):
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	d := &nodeapi.DescribeResponse{
		Mounts:      s.Pods.dirs.mounts(id),
		Env:         map[string]string{"HEADSTART_INPUT_DIR": staging.Mount, "HEADSTART_INSTANCE": id},
		Traceparent: s.Pods.described(id),
		OtlpTarget:  s.Pods.config.OTLP,
	}
	if r.GetJob() || s.Pods.isJob(id) {
		d.Env["HEADSTART_INPUT"] = job.Path
		if d.Traceparent == "" {
			d.Traceparent = s.Pods.config.Jobs.Traceparent(id)
		}
	}
	if path, ok := s.Pods.openSocket(id); ok {
		instance.DescribeSocket(d, path)
	}
	return d, nil
}

// Gone lets go of a container, and of its pod's directory with the last one. A pod of the
// set keeps it: its containers may be started again.
func (s Shims) Gone(_ context.Context, r *nodeapi.GoneRequest) (*nodeapi.GoneResponse, error) {
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.Pods.release(id, r.GetSandbox()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &nodeapi.GoneResponse{}, nil
}

// described returns the traceparent of the request that waits for the pod, if one does.
func (s *Set) described(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[id]
	if p == nil {
		return ""
	}
	if p.made.IsZero() {
		p.made = time.Now() // its sandbox is: this is the first container in it
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), p.request), carrier)
	return carrier["traceparent"]
}

func (s *Set) release(id, container string) error {
	if err := s.dirs.release(id, container); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(id) {
		return nil
	}
	_, err := s.dirs.remove(id)
	return err
}

// podID is the pod's id as the control plane has it, and as the kubelet names the
// directories of pods' logs.
func podID(p *nodeapi.Pod) (string, error) {
	for _, part := range []string{p.GetNamespace(), p.GetName(), p.GetUid()} {
		if err := checkName(part, nameLimit); err != nil {
			return "", err
		}
		if strings.Contains(part, "_") {
			return "", fmt.Errorf("%.64q is no part of a pod's name", part)
		}
	}
	return p.GetNamespace() + "_" + p.GetName() + "_" + p.GetUid(), nil
}
