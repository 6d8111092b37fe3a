package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// protobuf costs the API server and us a fraction of JSON's time and memory.
	protobuf = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// requestsPerSecond and requestsBurst are for scaling and events only; client-go's 5
	// and 10 would hold up a burst of cold functions. The API server has its own limits.
	requestsPerSecond = 100
	requestsBurst     = 200
)

// Clients reach the API server.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
}

// Connect makes the clients for the API server that c names; it does not talk to it yet.
func Connect(c *rest.Config) (Clients, error) {
	shared := rest.CopyConfig(c)
	shared.QPS, shared.Burst = requestsPerSecond, requestsBurst
	compact := rest.CopyConfig(shared)
	compact.ContentType, compact.AcceptContentTypes = runtime.ContentTypeProtobuf, protobuf
	k, err := kubernetes.NewForConfig(compact)
	if err != nil {
		return Clients{}, fmt.Errorf("making a client of the API server: %w", err)
	}
	d, err := dynamic.NewForConfig(shared)
	if err != nil {
		return Clients{}, fmt.Errorf("making a dynamic client of the API server: %w", err)
	}
	return Clients{Kubernetes: k, Dynamic: d}, nil
}
