package local

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

const (
	// functionsMost bounds what one machine is asked to know.
	functionsMost = 1000
	// bytesMost bounds all functions together as nodes are told them, in one message:
	// gRPC takes 4 MiB, and the operator's stores go with it.
	bytesMost = 3 << 20
)

// Apply deploys the functions, all or none, and returns what changed, in their order.
// A changed function's instances are replaced at its next request.
func (p *Platform) Apply(functions []platform.Function) ([]platform.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, generation := maps.Clone(p.functions), p.generation
	changes := make([]platform.Change, len(functions))
	for i, f := range functions {
		old, known := next[f.Name]
		f.Generation = old.Generation
		switch {
		case !known || old.Deleting:
			changes[i] = platform.Created
		case reflect.DeepEqual(old, f):
			changes[i] = platform.Unchanged
			continue
		default:
			changes[i] = platform.Configured
		}
		generation++
		f.Generation = generation
		next[f.Name] = f
	}
	if err := fits(next); err != nil {
		return nil, err
	}
	if err := p.save(next, generation); err != nil {
		return nil, err
	}
	before := p.functions
	p.functions, p.generation = next, generation
	for i, f := range functions {
		if changes[i] == platform.Configured {
			p.retire(before[f.Name])
		}
	}
	p.changed()
	return changes, nil
}

// fits refuses more than nodes can be told.
func fits(functions map[string]platform.Function) error {
	bytes := 0
	for _, f := range functions {
		bytes += proto.Size(Message(f))
	}
	if len(functions) <= functionsMost && bytes <= bytesMost {
		return nil
	}
	return &platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "PlatformFull",
		Message: fmt.Sprintf("these would be %d functions of %d bytes in all; the embedded platform takes %d of %d bytes; beyond one machine use Kubernetes",
			len(functions), bytes, functionsMost, bytesMost)}
}

// Delete removes the function. Its instances answer the requests that they have.
func (p *Platform) Delete(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.deployed(name)
	if !ok {
		return &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: fmt.Sprintf("function %q is not deployed", name)}
	}
	next := maps.Clone(p.functions)
	f.Deleting = true
	next[name] = f
	if err := p.save(next, p.generation); err != nil {
		return err
	}
	p.functions = next
	p.retire(f)
	p.forgetDeleted(name)
	p.events.Forget(name)
	p.changed()
	return nil
}

// save writes the functions down, together with the nodes that a restarted control
// plane waits for; the caller holds mu.
func (p *Platform) save(functions map[string]platform.Function, generation int64) error {
	s := saved{Generation: generation, Nodes: p.knownNodes()}
	for _, f := range functions {
		if !f.Deleting {
			s.Functions = append(s.Functions, f)
		}
	}
	return p.disk.save(s)
}

// ScaleToZero implements platform.Platform.
func (p *Platform) ScaleToZero(_ context.Context, function string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire(p.functions[function])
	return nil
}
