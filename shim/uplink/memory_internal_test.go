package uplink

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// 10,000 functions in 100 namespaces, as Kubernetes' are told, from two control planes: what the node knows of them
// is a part of its 64 MiB.
func TestAttackManyFunctionsFitTheDaemonsMemory(t *testing.T) {
	const functions, most = 10_000, 20 << 20
	before := heap()
	u := &Uplink{streams: []*stream{{}, {}}}
	size := 0
	for _, s := range u.streams {
		for i := range functions {
			host := fmt.Sprintf("f%d.ns%d", i, i%100)
			wire, err := proto.Marshal(changeOf(&nodeapi.FunctionChanges{More: i < functions-1, Functions: []*nodeapi.Function{{
				Name: fmt.Sprintf("ns%d/f%d", i%100, i), Hosts: []string{host + ".svc.cluster.local", host + ".svc", host}, Generation: int64(i),
				HasInput: true, InputTemplate: "s3://videos/{header.x-key}", Store: "default", InputLimit: 1 << 30, Port: 8080,
				ReadyTimeout: durationpb.New(1), RequestTimeout: durationpb.New(1)}}}))
			if err != nil {
				t.Fatal(err)
			}
			size += len(wire)
			var m nodeapi.ControlMessage
			if err := proto.Unmarshal(wire, &m); err != nil {
				t.Fatal(err)
			}
			s.said.hear(&m)
		}
	}
	used := heap() - before
	t.Logf("%d bytes told by two control planes take %d KiB", size, used>>10)
	if used > most {
		t.Errorf("%d MiB", used>>20)
	}
	runtime.KeepAlive(u)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
