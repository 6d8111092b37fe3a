// Package job brings the inputs of jobs: of containers that run once, for no request. Their
// fetch begins when the node hears of the job, before its sandbox is made.
package job

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	// Name is what a job's program finds its input by: the file's name, and its name in the
	// path of the sandbox's socket. No request is called so.
	Name = sandboxes.JobInput
	// path is the file in the sandbox.
	path = staging.Mount + "/" + Name

	// announceTimeout is how long a sandbox may be ahead of the news of its job. The control
	// plane hears of a pod when the kubelet does; it may be being started again.
	announceTimeout = 15 * time.Second
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/job")

// errUnknown is what becomes of a sandbox of which the control plane says nothing.
var errUnknown = problem.New(http.StatusServiceUnavailable, "JobUnknown", "",
	"the control plane has not told this node of the job; `headstart status` shows whether it runs and has this node")

// Config is what a set is made of.
type Config struct {
	Objects *objects.Cache
	// Deliveries serve the inputs by the sandboxes' sockets.
	Deliveries sandboxes.Deliveries
	Log        *slog.Logger
}

// Set holds the jobs that the node knows. Its methods may be called at the same time.
type Set struct {
	config Config

	mu        sync.Mutex
	jobs      map[string]*job
	announced sandboxes.News
}

// New returns a set without jobs.
func New(c Config) *Set {
	return &Set{config: c, jobs: map[string]*job{}}
}

// Begin has a job's input fetched from now on; ctx is for its trace only. dir is where the
// job's sandbox sees its inputs, nil while there is none: what an earlier daemon has put there
// is not fetched again. A job that is known stays as it is.
func (s *Set) Begin(ctx context.Context, about *nodeapi.Job, dir *staging.Dir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[about.GetId()] != nil {
		return
	}
	j := newJob(ctx, s.config, about)
	s.jobs[j.id] = j
	if dir == nil || !has(dir) {
		j.fetch()
	}
	s.announced.Tell()
}

// Bring implements sandboxes.Provider: the program of a job waits for its input. Who asks again
// for one that could not be had has it fetched again: it is another container of the job.
func (s *Set) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	if !sb.Job {
		return sandboxes.Need{}, nil
	}
	return sandboxes.Need{
		Env:         map[string]string{"HEADSTART_INPUT": path},
		Traceparent: s.traceparent(sb.ID),
		Wait:        sandboxes.WaitFail,
		Await: func(ctx context.Context) error {
			j, err := s.find(ctx, sb.ID)
			if err != nil {
				return err
			}
			return j.stage(ctx, sb.Inputs)
		},
	}, nil
}

// Await returns when the node has heard of the job, or the *problem.Problem for which its
// sandbox has no input.
func (s *Set) Await(ctx context.Context, id string) error {
	j, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	return j.refused()
}

// find returns the job, waiting a little for it to be announced.
func (s *Set) find(ctx context.Context, id string) (*job, error) {
	return sandboxes.Announced(ctx, announceTimeout, errUnknown, func() (*job, <-chan struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if j := s.jobs[id]; j != nil {
			return j, nil, nil
		}
		return nil, s.announced.Next(), nil
	})
}

// traceparent is the trace of a job, for what its sandbox has to tell; empty if the job is not
// known.
func (s *Set) traceparent(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		return tracing.Traceparent(j.trace)
	}
	return ""
}

// Release implements sandboxes.Provider: it lets go of what a job's input takes of the node, but
// for the file, which goes with its directory.
func (s *Set) Release(id string) {
	s.mu.Lock()
	j := s.jobs[id]
	delete(s.jobs, id)
	s.mu.Unlock()
	if j != nil {
		j.end()
	}
}

// Close ends all jobs for this process. Their programs go on.
func (s *Set) Close() {
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = map[string]*job{}
	s.mu.Unlock()
	for _, j := range jobs {
		j.end()
	}
}
