package local

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// functionsMost bounds what one machine is asked to know.
const functionsMost = 1000

// Change is what applying a manifest did.
type Change string

// The changes, in kubectl's words.
const (
	Created    Change = "created"
	Configured Change = "configured"
	Unchanged  Change = "unchanged"
)

// Apply deploys the functions, all or none, and returns what changed, in their order.
// A changed function's instances are replaced at its next request.
func (p *Platform) Apply(functions []platform.Function) ([]Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := make(map[string]platform.Function, len(p.functions)+len(functions))
	for name, f := range p.functions {
		next[name] = f
	}
	changes := make([]Change, len(functions))
	for i, f := range functions {
		old, known := next[f.Name]
		f.Generation = old.Generation
		switch {
		case !known:
			changes[i], f.Generation = Created, 1
		case reflect.DeepEqual(old, f):
			changes[i] = Unchanged
		default:
			changes[i] = Configured
			f.Generation++
		}
		next[f.Name] = f
	}
	if len(next) > functionsMost {
		return nil, fmt.Errorf("the embedded platform takes %d functions; beyond one machine use Kubernetes", functionsMost)
	}
	if err := p.save(next); err != nil {
		return nil, err
	}
	p.functions = next
	for i, f := range functions {
		if changes[i] == Configured {
			p.retire(f.Name)
		}
	}
	p.changed()
	return changes, nil
}

// Delete removes the function and its instances.
func (p *Platform) Delete(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.functions[name]; !ok {
		return &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: fmt.Sprintf("function %q is not deployed", name)}
	}
	next := make(map[string]platform.Function, len(p.functions))
	for n, f := range p.functions {
		if n != name {
			next[n] = f
		}
	}
	if err := p.save(next); err != nil {
		return err
	}
	p.functions = next
	p.retire(name)
	p.events.Forget(name)
	p.changed()
	return nil
}

// save writes the functions down, together with the nodes that a restarted control
// plane waits for; the caller holds mu.
func (p *Platform) save(functions map[string]platform.Function) error {
	s := saved{Nodes: p.knownNodes()}
	for _, f := range functions {
		s.Functions = append(s.Functions, f)
	}
	return p.disk.save(s)
}

// ScaleToZero implements platform.Platform.
func (p *Platform) ScaleToZero(_ context.Context, function string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire(function)
	return nil
}
