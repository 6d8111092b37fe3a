package nodes

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// partBytes is the size above which a message that grows with the cluster is told in parts: far below
	// the 4 MiB that gRPC takes by default, with which a node's stream would end for good, and so large
	// that 10,000 functions are some tens of messages.
	partBytes = 256 << 10
	// removedMost names are below partBytes: a namespace and a name have at most 63 bytes each.
	removedMost = 1024
)

// differ returns what is different from before, each sorted by name.
func differ(before, now *nodeapi.Functions) (changed []*nodeapi.Function, removed []string) {
	old := make(map[string]*nodeapi.Function, len(before.GetFunctions()))
	for _, f := range before.GetFunctions() {
		old[f.GetName()] = f
	}
	for _, f := range now.GetFunctions() {
		if !proto.Equal(old[f.GetName()], f) {
			changed = append(changed, f)
		}
		delete(old, f.GetName())
	}
	return changed, slices.Sorted(maps.Keys(old))
}

// changes tells of functions that are new, different or gone; the caller holds mu.
func (s *Server) changes(
	changed []*nodeapi.Function, removed []string, stores []*nodeapi.Store,
) []*nodeapi.ControlMessage {
	var parts []*nodeapi.FunctionChanges
	for names := range slices.Chunk(removed, removedMost) {
		parts = append(parts, &nodeapi.FunctionChanges{Removed: names})
	}
	for _, some := range cut(changed) {
		parts = append(parts, &nodeapi.FunctionChanges{Functions: some})
	}
	if len(parts) == 0 {
		parts = append(parts, &nodeapi.FunctionChanges{})
	}
	parts[len(parts)-1].Stores, parts[len(parts)-1].Destinations = stores, s.destinations
	all := make([]*nodeapi.ControlMessage, len(parts))
	for i, p := range parts {
		p.More = i < len(parts)-1
		all[i] = &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_FunctionChanges{FunctionChanges: p}}
	}
	return all
}

// inParts are the messages that a large one is told by, to a daemon that takes parts.
func inParts(m *nodeapi.ControlMessage) []*nodeapi.ControlMessage {
	if proto.Size(m) <= partBytes {
		return []*nodeapi.ControlMessage{m}
	}
	var all []*nodeapi.ControlMessage
	switch k := m.GetKind().(type) {
	case *nodeapi.ControlMessage_Instances:
		for _, volumes := range cut(k.Instances.GetVolumes()) {
			all = append(all, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{
				Instances: &nodeapi.Instances{Volumes: volumes, More: true}}})
		}
		for _, connections := range cut(k.Instances.GetConnections()) {
			all = append(all, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{
				Instances: &nodeapi.Instances{Connections: connections, More: true}}})
		}
		for _, jobs := range cut(k.Instances.GetJobs()) {
			all = append(all, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{
				Instances: &nodeapi.Instances{Jobs: jobs, More: true}}})
		}
		for _, some := range cut(k.Instances.GetInstances()) {
			all = append(all, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{
				Instances: &nodeapi.Instances{Instances: some, More: true}}})
		}
		all[len(all)-1].GetInstances().More = false
	case *nodeapi.ControlMessage_Triggers:
		for _, some := range cut(k.Triggers.GetTriggers()) {
			all = append(all, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Triggers{
				Triggers: &nodeapi.Triggers{Triggers: some, More: true}}})
		}
		all[len(all)-1].GetTriggers().More = false
	default: // none of the others grows with the cluster
		return []*nodeapi.ControlMessage{m}
	}
	return all
}

// cut divides messages so that those of a part have partBytes together, or one of them has more.
func cut[M proto.Message](all []M) (parts [][]M) {
	begin, size := 0, 0
	for i, m := range all {
		n := proto.Size(m)
		if size += n; size > partBytes && i > begin {
			parts = append(parts, all[begin:i])
			begin, size = i, n
		}
	}
	if begin < len(all) {
		parts = append(parts, all[begin:])
	}
	return parts
}
