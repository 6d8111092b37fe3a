package main

import (
	"context"
	"crypto/tls"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// The platforms that a node can be of.
const (
	platformLocal      = "local"
	platformKubernetes = "kubernetes"
)

// party is who the node is to control plane and peers.
type party struct {
	name   string
	server *tls.Config
	// client is the configuration for one connection to a peer's host.
	client func(host string) (*tls.Config, error)
	// controlPlane is for connections to the control plane.
	controlPlane credentials.TransportCredentials
	// run keeps it up to date until its context ends.
	run func(context.Context)
}

// platform is what runs the node's instances. local.go and kubernetes.go each make one.
type platform struct {
	sandboxes *sandboxes.Set
	// mesh is nil where there is none.
	mesh ingress.Mesh
	// serve adds what only this platform has to what the daemon does.
	serve func(context.Context, *errgroup.Group)
	close func() error
}
