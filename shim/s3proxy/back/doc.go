// Package back answers writes of intermediate data when they are durable on this node, and uploads them behind. The store
// keeps the order of writes: there is no membership and no leader, and no clock is needed for correctness.
package back
