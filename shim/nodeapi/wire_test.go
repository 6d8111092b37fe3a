package nodeapi_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

var update = flag.Bool("update", false, "add what is new to testdata/wire.txt")

const wireFile = "testdata/wire.txt"

// Shims, daemons and control planes of neighbouring versions talk to each other: what one
// release has on the wire, all later ones have as well.
func TestTheWireOnlyGrows(t *testing.T) {
	text, err := os.ReadFile(wireFile)
	if err != nil {
		t.Fatal(err)
	}
	released, now := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), wire(nodeapi.File_node_proto)
	for _, line := range released {
		if !slices.Contains(now, line) {
			t.Errorf("%q is gone or different: a neighbouring version still has it; add a field of a new number in its place", line)
		}
	}
	for _, line := range now {
		if !*update && !slices.Contains(released, line) {
			t.Errorf("%q is new: run this test with -update, and say in PROTOCOL.md what a version without it does", line)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(wireFile, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wire is all that two versions have to agree on, a line each.
func wire(f protoreflect.FileDescriptor) (all []string) {
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			all = append(all, fmt.Sprintf("call %s(%s stream=%v) %s stream=%v", m.FullName(), m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer()))
		}
	}
	all = append(all, enums(f.Enums())...)
	all = append(all, messages(f.Messages())...)
	slices.Sort(all)
	return all
}

func messages(list protoreflect.MessageDescriptors) (all []string) {
	for i := range list.Len() {
		m := list.Get(i)
		all = append(all, enums(m.Enums())...)
		all = append(all, messages(m.Messages())...) // also those of maps
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch {
			case f.Message() != nil:
				kind = string(f.Message().FullName())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName())
			}
			line := fmt.Sprintf("field %s %d %s %s", m.FullName(), f.Number(), f.Cardinality(), kind)
			if one := f.ContainingOneof(); one != nil {
				line += " of " + string(one.Name())
			}
			all = append(all, line)
		}
	}
	return all
}

func enums(list protoreflect.EnumDescriptors) (all []string) {
	for i := range list.Len() {
		e := list.Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			all = append(all, fmt.Sprintf("value %s %d %s", e.FullName(), v.Number(), v.Name()))
		}
	}
	return all
}
