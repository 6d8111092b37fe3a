// Package nodeapi is what a node's daemon says to its shims and to the control plane:
// messages and services of node.proto. PROTOCOL.md tells what they are for.
package nodeapi

//go:generate sh generate.sh
