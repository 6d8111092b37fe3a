package curator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
)

// Of a volume's versions the largest is told, and those that no pod has are room for others.
func TestKeeps(t *testing.T) {
	version := func(namespace string, mebibytes int64, pods int, pinned bool) tree.Held {
		return tree.Held{Namespace: namespace, Store: "default", Prefix: "s3://models/", Bytes: mebibytes << 20, Pods: pods, Pinned: pinned}
	}
	got := keeps(objects.Condition{Bytes: 100 << 20, Limit: 1 << 30, Room: 1 << 30}, []tree.Held{
		version("media", 128, 0, false), version("media", 256, 0, true), version("bank", 64, 1, false), version("media", 64, 2, false),
		{Namespace: "media", Bytes: 64 << 20}, // an earlier daemon noted nothing of it
	})
	want := &nodeapi.Keeps{Bytes: 64 << 20, Limit: 1 << 30, Room: 1<<30 + 192<<20, Volumes: []*nodeapi.KeptVolume{
		{Namespace: "bank", Store: "default", Prefix: "s3://models/", Bytes: 64 << 20},
		{Namespace: "media", Store: "default", Prefix: "s3://models/", Bytes: 256 << 20}}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// However many volumes a node has, the message can be sent, and has those of pods.
func TestManyVolumes(t *testing.T) {
	var all []tree.Held
	for i := range 5000 {
		all = append(all, tree.Held{Namespace: "media", Store: "default", Prefix: fmt.Sprintf("s3://models/%01000d/", i)})
	}
	all[4999].Pods = 1
	m := keeps(objects.Condition{}, all)
	if b, err := proto.Marshal(m); err != nil || len(b) > 3<<20 || len(m.GetVolumes()) != volumesMost {
		t.Errorf("%d volumes in %d bytes: %v", len(m.GetVolumes()), len(b), err)
	}
	if last := m.GetVolumes()[volumesMost-1].GetPrefix(); !strings.HasSuffix(last, "4999/") {
		t.Errorf("the pod's volume is not among them: the last is %.40s", last)
	}
}
