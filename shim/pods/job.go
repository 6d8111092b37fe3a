package pods

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// setJobs has the inputs of the jobs fetched that are new, and returns all by id; the caller
// holds mu.
func (s *Set) setJobs(list []*nodeapi.Job) map[string]*nodeapi.Job {
	jobs := make(map[string]*nodeapi.Job, len(list))
	for _, j := range list {
		if checkName(j.GetId(), idLimit) != nil {
			continue // it could have no directory
		}
		if jobs[j.GetId()] = j; s.jobs[j.GetId()] == nil {
			s.config.Jobs.Begin(context.Background(), j, s.dirs.inputs(j.GetId()))
		}
	}
	return jobs
}

// has tells whether the control plane knows the pod, as an instance or as a job; the caller
// holds mu.
func (s *Set) has(id string) bool { return s.pods[id] != nil || s.jobs[id] != nil }

// isJob tells whether the pod is one, as far as was heard.
func (s *Set) isJob(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id] != nil
}

// SaysJob tells whether the pod is a job by what its containers say. The control plane's word
// may come after that.
func (s *Set) SaysJob(id string) bool { return s.dirs.isJob(id) }

// Stage answers when the pod's containers have their input.
func (s Shims) Stage(ctx context.Context, r *nodeapi.StageRequest) (*nodeapi.StageResponse, error) {
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	dir := s.Pods.dirs.inputs(id)
	if dir == nil {
		return nil, status.Error(codes.FailedPrecondition, "the pod has no directory for its input")
	}
	if err := s.Pods.config.Jobs.Stage(ctx, id, dir); err != nil {
		return nil, job.Status(ctx, err)
	}
	return &nodeapi.StageResponse{}, nil
}
