package sandboxes_test

import (
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

func (r *podRig) hasVolumes(ids ...string) {
	m := &nodeapi.Instances{}
	for _, id := range ids {
		m.Volumes = append(m.Volumes, &nodeapi.Volumes{Id: id})
	}
	r.Instances(m)
}

// A pod's volumes are begun when the node hears of it, mounted in all its containers, and let go of with the last of them.
func TestAPodHasVolumes(t *testing.T) {
	r, v := newPodRig(t), &volumes{}
	r.configure.Volumes = v
	r.Close()
	r.open()
	p := pod("fire-x", "a")
	if _, err := r.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "a", Pod: p}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of a pod that was not described: %v", err)
	}
	r.hasVolumes(one, "../../etc")
	if !slices.Equal(v.known, []string{one}) {
		t.Errorf("begun for %q", v.known)
	}
	r.described("a", p)
	got, err := r.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "a", Pod: p})
	if err != nil || len(got.GetMounts()) != 1 || got.GetMounts()[0].GetSource() != "/v/"+one {
		t.Errorf("mounts %v, %v", got, err)
	}
	if err := r.stage("a", p); err != nil {
		t.Errorf("its start waits for more: %v", err)
	}
	r.gone("a", p) // its next container finds the same
	r.hasVolumes(one)
	if len(v.released) != 0 {
		t.Errorf("let go of %q", v.released)
	}
	r.described("b", p)
	r.hasVolumes()
	if len(v.released) != 0 {
		t.Errorf("while a container has them: let go of %q", v.released)
	}
	r.gone("b", p)
	if !slices.Equal(v.released, []string{one}) {
		t.Errorf("let go of %q", v.released)
	}
}

// The shim of a container without its volumes is told what its owner is to read.
func TestVolumesThatCannotBeHad(t *testing.T) {
	r := newPodRig(t)
	r.configure.Volumes = &volumes{fails: problem.New(http.StatusGatewayTimeout, "VolumeLate", "", "models is not there")}
	r.Close()
	r.open()
	r.described("a", pod("fire-x", "a"))
	_, err := r.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "a", Pod: pod("fire-x", "a")})
	if p := status.Convert(err); p.Code() != codes.FailedPrecondition || p.Message() != "VolumeLate: models is not there" {
		t.Error(err)
	}
	if _, err := r.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "a", Pod: pod("..", "a")}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// An instance on one machine has the annotations that its shim knows volumes by.
func TestAnInstanceHasVolumes(t *testing.T) {
	r := newRig(t)
	r.set.Close()
	v := &volumes{}
	node := &shimmed{Memory: r.node, specs: map[string]sandboxes.Spec{}}
	c := r.config()
	c.Volumes = v
	set, err := sandboxes.OpenLocal(t.Context(), c, node, func(*nodeapi.InstanceStatus) {})
	if err != nil {
		t.Fatal(err)
	}
	m := r.message("video-1", r.serving()...)
	m.Volumes = &nodeapi.Volumes{Id: "video-1", StartLate: true, Volumes: []*nodeapi.Volume{
		{Name: "models", Prefix: "s3://models/llama/"}, {Name: "words", Prefix: "s3://words/"}}}
	set.Start(m)
	if _, err := set.Ready(t.Context(), "video-1"); err != nil {
		t.Fatal(err)
	}
	a := node.specs["video-1"].Annotations
	if a[filterapi.AnnotationVolumes] != "models=s3://models/llama/,words=s3://words/" || a[filterapi.AnnotationVolumesLate] != "start" ||
		a[nodeapi.NamespaceAnnotation] != "default" {
		t.Errorf("annotations %v", a)
	}
	if got, err := set.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "video-1"}); err != nil || len(got.GetMounts()) != 1 {
		t.Errorf("mounts %v, %v", got, err)
	}
	if _, err := set.Mounts(t.Context(), &nodeapi.MountsRequest{Sandbox: "another"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	set.Stop("video-1", 1)
	set.Close()
}
