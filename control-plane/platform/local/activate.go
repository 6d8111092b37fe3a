package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// nameMost is what an instance's id takes of its function's name: containerd allows
	// 76 characters, and a generation, the random part and two dashes are up to 31.
	nameMost = 44
	// randomBytes tell a generation's instances apart. There are few at a time, but logs
	// and traces name those of days.
	randomBytes = 5
)

// Activate implements platform.Platform.
func (p *Platform) Activate(ctx context.Context, r platform.Request) (platform.Instance, error) {
	select {
	case <-p.recovered:
	case <-ctx.Done():
		return platform.Instance{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.deployed(r.Function)
	if !ok {
		return platform.Instance{}, &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function is deployed"}
	}
	if err := f.RefusesCaller(r.Caller); err != nil {
		return platform.Instance{}, err
	}
	if f.Workflow != nil {
		return platform.Instance{}, platform.OldDaemon(r.Node)
	}
	p.activity.Touch(f.Name)
	if _, left := p.left[f.Node]; left { // no other node can take it
		_, err := p.place(f, r.Node)
		return platform.Instance{}, err
	}
	usable := p.usable(f.Name)
	for _, in := range usable {
		if !p.joined[in.Node] {
			// Its node cannot deliver the request now. Once that is back, the function would have more
			// instances than it may have, so this one has had its time.
			p.withdraw(in, f)
		}
	}
	usable = slices.DeleteFunc(usable, func(in *instance) bool { return in.Phase == platform.Stopping })
	if len(usable) > 0 && (!r.More || len(usable) >= most(f)) {
		return first(usable, r.Node).Instance, nil
	}
	node, err := p.place(f, r.Node)
	if err != nil {
		return platform.Instance{}, err
	}
	in := &instance{Instance: platform.Instance{ID: newID(f), Function: f.Name, Node: node, Phase: platform.Starting}}
	if err := p.nodes.Send(node, startMessage(in.ID, f, tracing.Traceparent(ctx))); err != nil {
		return platform.Instance{}, &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeUnavailable",
			Message: "node " + node + " does not take instances now; try again"}
	}
	p.instances[in.ID] = in
	p.changed()
	return in.Instance, nil
}

// most is how many instances a function may have.
func most(f platform.Function) int {
	if !f.OneAtATime {
		return 1
	}
	return max(1, int(f.MaxInstances))
}

// usable returns the function's instances that take requests, or will; the caller holds mu.
func (p *Platform) usable(function string) (all []*instance) {
	for _, in := range p.instances {
		if in.Function == function && in.Phase != platform.Stopping {
			all = append(all, in)
		}
	}
	return all
}

// first is the instance that a node's request is bound to: one that is ready, then one on the node.
func first(usable []*instance, node string) *instance {
	no := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	return slices.MinFunc(usable, func(a, b *instance) int {
		return cmp.Or(no(a.Phase == platform.Ready)-no(b.Phase == platform.Ready), no(a.Node == node)-no(b.Node == node),
			cmp.Compare(a.ID, b.ID))
	})
}

func (p *Platform) nodeNames() []string { return slices.Sorted(maps.Keys(p.joined)) }

// newID is a name of containerd's: letters and digits with single dashes between. It
// tells the function's generation, because nodes do not when they say what runs.
func newID(f platform.Function) string {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return idPrefix(f) + hex.EncodeToString(b[:])
}

// idPrefix begins the ids of all instances of the function's generation.
func idPrefix(f platform.Function) string {
	words := strings.FieldsFunc(f.Name, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	name := strings.Join(words, "-")
	name = strings.TrimRight(name[:min(len(name), nameMost)], "-")
	return fmt.Sprintf("%s-%d-", name, f.Generation)
}

func startMessage(id string, f platform.Function, traceparent string) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Start{Start: &nodeapi.StartInstance{
		Id: id, Function: Message(f), Traceparent: traceparent, Volumes: f.Policy.Volumes.Message(id, f.Name),
		Connections: f.Policy.Connections.Message(id, f.Name, ""),
	}}}
}

// Message is the function as nodes know it.
func Message(f platform.Function) *nodeapi.Function {
	m := &nodeapi.Function{
		Name: f.Name, Generation: f.Generation, Hosts: f.Hosts, Port: f.Port, ProbePath: f.ProbePath,
		Image: f.Image, Command: f.Command, Args: f.Args, Env: f.Env,
		CpuLimitMillis: f.CPULimitMillis, MemoryLimit: f.MemoryLimit, RequestTimeout: durationpb.New(f.RequestTimeout),
	}
	f.Policy.Tell(m)
	m.Workflow, m.OneAtATime, m.OneInstance, m.RunsAhead = f.Runs(), f.OneAtATime, most(f) == 1, f.Policy.RunsAhead
	return m
}
