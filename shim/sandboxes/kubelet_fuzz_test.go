package sandboxes_test

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// Whatever pods the control plane says that there are, those that it says no more of are gone.
func FuzzInstances(f *testing.F) {
	for _, m := range []*nodeapi.Instances{
		{Instances: []*nodeapi.InstanceStatus{podStarting(""), podStarting("10.0.0.1:80")}},
		{Instances: []*nodeapi.InstanceStatus{podStarting("not an address"), {Id: "../../etc", Function: "a"}}},
		{Instances: []*nodeapi.InstanceStatus{{}, {Phase: 99}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		var said nodeapi.Instances
		if proto.Unmarshal(data, &said) != nil || len(said.GetJobs()) > 0 {
			return
		}
		for _, i := range said.GetInstances() {
			i.Address = "" // so that nobody is probed
			i.Phase = nodeapi.Phase_PHASE_STARTING
			if i.GetId() == one {
				return
			}
		}
		set, err := sandboxes.OpenKubelet(sandboxes.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, func(string) *nodeapi.Function { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		set.Instances(&said)
		for _, i := range said.GetInstances() {
			if _, known := set.Inputs(i.GetId()); !known {
				t.Errorf("%q is not known", i.GetId())
			}
		}
		set.Instances(&nodeapi.Instances{})
		for _, i := range said.GetInstances() {
			if _, known := set.Inputs(i.GetId()); known {
				t.Errorf("%q is not gone", i.GetId())
			}
		}
	})
}
