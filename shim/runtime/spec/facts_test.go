package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestRead(t *testing.T) {
	const of = `"io.kubernetes.cri.sandbox-namespace":"default","io.kubernetes.cri.sandbox-name":"fire-x","io.kubernetes.cri.container-name":"fire"`
	fire := &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1", Container: "fire"}
	tests := map[string]struct {
		config string
		want   Facts
		fails  bool
	}{
		"CRI pause container":      {config: `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`, want: Facts{Pause: true}},
		"CRI-O pause container":    {config: `{"annotations":{"io.kubernetes.cri-o.ContainerType":"sandbox"}}`, want: Facts{Pause: true}},
		"container of a pod":       {config: `{"annotations":{"io.kubernetes.cri.container-type":"container",` + of + `,"io.kubernetes.cri.sandbox-uid":"u-1"}}`, want: Facts{Pod: fire}},
		"of an old containerd":     {config: `{"annotations":{` + of + `,"io.kubernetes.cri.sandbox-log-directory":"/var/log/pods/default_fire-x_u-1"}}`, want: Facts{Pod: fire}},
		"of another log directory": {config: `{"annotations":{` + of + `,"io.kubernetes.cri.sandbox-log-directory":"/var/log/pods/u-1"}}`},
		"pod without a uid":        {config: `{"annotations":{` + of + `}}`},
		"other annotations":        {config: `{"annotations":{"a":"sandbox"}}`},
		"no annotations":           {config: `{}`},
		"annotations are null":     {config: `{"annotations":null,"linux":null}`},
		"annotations of numbers":   {config: `{"annotations":{"a":1}}`, fails: true},
		"cgroup of systemd":        {config: `{"linux":{"cgroupsPath":"kubepods-besteffort-pod1.slice:cri-containerd:abc"}}`, want: Facts{SystemdCgroup: true}},
		"cgroup by path":           {config: `{"linux":{"cgroupsPath":"/kubepods/besteffort/pod1/abc"}}`},
		"cgroup by odd path":       {config: `{"linux":{"cgroupsPath":"/a.slice:b:c"}}`},
		"cgroup of two parts":      {config: `{"linux":{"cgroupsPath":"a.slice:b"}}`},
		"cgroup of a number":       {config: `{"linux":{"cgroupsPath":1}}`, fails: true},
		"job": {config: `{"annotations":{"headstart.dev/input":"s3://videos/a"}}`, want: Facts{
			Job: true, AwaitsInput: true,
		}},
		"job that reads a file":                {config: `{"annotations":{"headstart.dev/input":"s3://videos/a","headstart.dev/read-by":"file"}}`, want: Facts{Job: true, AwaitsInput: true}},
		"job that reads a socket":              {config: `{"annotations":{"headstart.dev/input":"s3://videos/a","headstart.dev/read-by":"socket"}}`, want: Facts{Job: true}},
		"job without an input":                 {config: `{"annotations":{"headstart.dev/input":""}}`},
		"pause container of a job":             {config: `{"annotations":{"headstart.dev/input":"s3://videos/a","io.kubernetes.cri.container-type":"sandbox"}}`, want: Facts{Pause: true}},
		"with connections":                     {config: `{"annotations":{"headstart.dev/connections":"orders"}}`, want: Facts{Connections: true}},
		"with connections to nothing":          {config: `{"annotations":{"headstart.dev/connections":""}}`},
		"pause container of one that connects": {config: `{"annotations":{"headstart.dev/connections":"orders","io.kubernetes.cri.container-type":"sandbox"}}`, want: Facts{Pause: true}},
		"with volumes": {config: `{"annotations":{"headstart.dev/volumes":"b=s3://models/a/,a=s3://models/","io.kubernetes.cri.sandbox-namespace":"media"}}`, want: Facts{
			Volumes: &Volumes{Namespace: "media", Names: []string{"b", "a"}},
		}},
		"with volumes that may be late": {config: `{"annotations":{"headstart.dev/volumes":"a=s3://models/","headstart.dev/volumes-late":"start"}}`, want: Facts{Volumes: &Volumes{Names: []string{"a"}, StartLate: true}}},
		"with volumes that are none":    {config: `{"annotations":{"headstart.dev/volumes":"a=/"}}`, want: Facts{Volumes: &Volumes{}}},
		"pause container of such a pod": {config: `{"annotations":{"headstart.dev/volumes":"a=s3://models/","io.kubernetes.cri.container-type":"sandbox"}}`, want: Facts{Pause: true}},
		"no JSON":                       {config: `{`, fails: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Read([]byte(tt.config))
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" || (err != nil) != tt.fails {
				t.Errorf("error %v, facts (-want +got):\n%s", err, diff)
			}
		})
	}
}
