package sandboxes_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const jobTraceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"

// jobs have an input for every job that they know, unless none can be had.
type jobs struct {
	fails error

	mu    sync.Mutex
	known []string
}

func (j *jobs) Begin(_ context.Context, m *nodeapi.Job, _ *staging.Dir) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known = append(j.known, m.GetId())
}

func (j *jobs) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	if !sb.Job {
		return sandboxes.Need{}, nil
	}
	return sandboxes.Need{Env: map[string]string{"HEADSTART_INPUT": "/headstart/input/job"}, Traceparent: jobTraceparent,
		Wait: sandboxes.WaitFail, Await: func(context.Context) error { return j.stage(sb) }}, nil
}

func (j *jobs) stage(sb sandboxes.Sandbox) error {
	if j.fails != nil {
		return j.fails
	}
	if !slices.Contains(j.all(), sb.ID) {
		return problem.New(http.StatusServiceUnavailable, "JobUnknown", "", "nobody knows it")
	}
	return sb.Inputs.Input.WriteFile("job", []byte("frames"), 0o444)
}

func (j *jobs) Release(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known = slices.DeleteFunc(j.known, func(k string) bool { return k == id })
}

func (j *jobs) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.known)
}

// provider brings a need with a directory of its own, and notes whom it is brought to.
type provider struct {
	name    string
	failure error
	need    sandboxes.Need // what else it has

	mu   sync.Mutex
	open []string
}

func (p *provider) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	if p.failure != nil {
		return sandboxes.Need{}, p.failure
	}
	dir, path, err := sb.Directory(p.name)
	if err != nil {
		return sandboxes.Need{}, err
	}
	_ = dir.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if open := sb.Namespace + " " + sb.ID; !slices.Contains(p.open, open) {
		p.open = append(p.open, open)
	}
	n := p.need
	n.Mounts = append(n.Mounts, &nodeapi.Mount{Source: path, Destination: "/headstart/" + p.name, ReadOnly: true})
	return n, nil
}

func (p *provider) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = slices.DeleteFunc(p.open, func(o string) bool { return strings.HasSuffix(o, " "+id) })
}

func (p *provider) brought() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.open)
}

// volumes are those of pods that the control plane has told of.
type volumes struct {
	mu       sync.Mutex
	known    []string
	released []string
	fails    error
}

func (v *volumes) Begin(m *nodeapi.Volumes) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = append(v.known, m.GetId())
}

func (v *volumes) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	return sandboxes.Need{Wait: sandboxes.WaitFail, Volumes: func(context.Context) ([]*nodeapi.Mount, error) {
		if v.fails != nil {
			return nil, v.fails
		}
		return []*nodeapi.Mount{{Source: "/v/" + sb.ID, Destination: "/headstart/volumes/models", ReadOnly: true}}, nil
	}}, nil
}

func (v *volumes) Release(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.released = append(v.released, id)
}

func (v *volumes) Sweep(keep func(string) bool) {
	if !keep(one) || keep("another") {
		v.Release("another")
	}
}
