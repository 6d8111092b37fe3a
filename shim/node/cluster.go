package node

import (
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// Cluster is a node whose sandboxes the kubelet starts. What it runs, the control plane knows.
type Cluster struct {
	common
	kubelet *sandboxes.Kubelet
}

// NewCluster joins the parts with the kubelet's sandboxes.
func NewCluster(p Parts, k *sandboxes.Kubelet) *Cluster { return &Cluster{common{p}, k} }

// Start implements uplink.Handler: the kubelet does.
func (n *Cluster) Start(*nodeapi.StartInstance) {}

// Stop implements uplink.Handler: the kubelet does.
func (n *Cluster) Stop(*nodeapi.StopInstance) {}

// Withdraw implements uplink.Handler: the kubelet's pods are never withdrawn one by one.
func (n *Cluster) Withdraw(*nodeapi.WithdrawInstance) {}

// Instances implements uplink.Handler.
func (n *Cluster) Instances(m *nodeapi.Instances) { n.kubelet.Instances(m) }

// Expect implements uplink.Handler.
func (n *Cluster) Expect(m *nodeapi.Expect) {
	n.kubelet.Expect(m)
	n.common.Expect(m)
}
