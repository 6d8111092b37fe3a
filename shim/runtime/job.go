package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// waiting is a sandbox that waits for its input, or for its volumes.
type waiting struct {
	pod  *nodeapi.Pod // nil outside Kubernetes
	over context.Context
	end  context.CancelFunc
}

// without says why a container is not to be made that is not to start without something, nil if that has a way into
// its sandbox. What the cause is, is for the log: it tells of the node.
func without(ctx context.Context, what, id string, d *nodeapi.DescribeResponse, missed *lapse) error {
	why := "the node's daemon does not know it"
	switch {
	case missed != nil:
		log.G(ctx).WithError(missed.cause).WithField("sandbox", id).WithField("reason", missed.reason).Error(
			"a container is not made that needs " + what,
		)
		if why = missed.reason; why == volumesMissing {
			why = whyNot(missed.cause)
		}
	case d != nil:
		return nil
	}
	return fmt.Errorf("%w: %s: %s", errdefs.ErrFailedPrecondition, what, why)
}

// expectInput returns what ends when the wait is not wanted any more.
func (s *Service) expectInput(id string, pod *nodeapi.Pod) (over context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiting{pod: pod}
	w.over, w.end = context.WithCancel(context.Background())
	s.jobs[id] = w
	return w.over
}

// endWait ends the wait for a job's input, also one that has not begun.
func (s *Service) endWait(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.jobs[id]; w != nil {
		w.end()
	}
}

// forgetInput also ends the wait for it.
func (s *Service) forgetInput(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.jobs[id]; w != nil {
		w.end()
		delete(s.jobs, id)
	}
}

// awaitInput returns when a job's sandbox has its input; that of others at once. Its error is
// what whoever ordered the container reads.
func (s *Service) awaitInput(ctx context.Context, id string) error {
	s.mu.Lock()
	w := s.jobs[id]
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.over, cancel)()
	err := w.over.Err()
	if err == nil {
		err = s.node.stage(ctx, id, w.pod)
	}
	if err == nil {
		s.forgetInput(id)
		return nil
	}
	log.G(ctx).WithError(err).WithField("sandbox", id).Warn("a job does not start")
	why := whyNot(err)
	if w.over.Err() != nil {
		why = "the container was ended while it waited for it"
	}
	return errgrpc.ToGRPC(fmt.Errorf("%w: the job's input: %s", errdefs.ErrFailedPrecondition, why))
}

// whyNot is what a start fails with that waited for an answer of the daemon's.
func whyNot(err error) string {
	switch status.Code(err) {
	case codes.Unavailable:
		return "the node's daemon does not answer"
	case codes.Unimplemented:
		return "the node's daemon is older than its shim"
	}
	return words(status.Convert(errors.Unwrap(err)).Message())
}

// maxWords bounds what the daemon says to the client that ordered a container, in bytes. An event of Kubernetes
// has 1024 for all of it, and containerd's protocol ends with a message of over 4 MiB.
const maxWords = 512

// words are the daemon's, as one line.
func words(s string) string {
	return strings.ToValidUTF8(strings.Join(strings.FieldsFunc(s[:min(len(s), maxWords)], unicode.IsControl), " "), "")
}
