package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// headerKey is the header by which a client says that requests are one and the same (draft-ietf-httpapi-idempotency-key-header).
const headerKey = "Idempotency-Key"

// notes are what a run has noted, in the order in which it goes on: another node that reads them goes on in the same way.
type notes struct {
	*journal.Journal
	destination string    // that the record is in
	latest      time.Time // when the last answer has counted
}

// open begins the run of a request, or goes on with one that has come before, if the request has a key, and the workflow a store. There are no notes
// otherwise.
func (o *Owner) open(ctx context.Context, r *http.Request, q Request, body []byte) (*notes, journal.Run, error) {
	key, now := r.Header.Get(headerKey), time.Now()
	switch {
	case key == "" || q.Workflow.GetState() == "":
		return nil, journal.Run{ID: q.ID, Began: now}, nil
	case len(key) > journal.KeyMost:
		return nil, journal.Run{}, problem.New(http.StatusBadRequest, "IdempotencyKeyMalformed", "header "+headerKey,
			fmt.Sprintf("it has more than %d bytes; send a shorter one, such as a UUID", journal.KeyMost))
	}
	asked := sha256.New()
	fmt.Fprintf(asked, "%s\n", q.Workflow.GetWorkflow().GetRevision())
	_, _ = asked.Write(body) // never fails
	store := func() (*redis.Client, error) { return o.config.Store(q.Workflow.GetName(), q.Workflow.GetState()) }
	j, run, err := journal.Open(ctx, store, q.Workflow.GetName(), key, hex.EncodeToString(asked.Sum(nil)), q.ID, now)
	return &notes{Journal: j, destination: q.Workflow.GetState(), latest: run.Began}, run, err
}

// again answers with what a run has come to before.
func again(w http.ResponseWriter, e *journal.End) error {
	w.Header().Set("Content-Type", e.Kind)
	w.WriteHeader(e.Status)
	_, err := w.Write(e.Body)
	return err
}

// replay goes on by what calls have answered, as the run did that has noted it.
func (r *run) replay(ctx context.Context) error {
	if err := r.owner.take(r.owner.memory, r.request.Workflow.GetName(), journal.PageMost); err != nil {
		return err
	}
	defer r.owner.memory.change(r.request.Workflow.GetName(), -journal.PageMost)
	for {
		page, err := r.notes.Read(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, c := range page {
			if err := r.repeat(ctx, c); err != nil {
				return err
			}
		}
	}
}

// repeat goes on by an answer, after what was to happen before it.
func (r *run) repeat(ctx context.Context, c journal.Call) error {
	r.notes.latest = c.At
	for at := r.state.Deadline(); !at.IsZero() && !at.After(c.At); at = r.state.Deadline() {
		if err := r.turn(ctx, func() *program.State { return r.state.Elapse(at) }); err != nil {
			return err
		}
	}
	if !r.awaits(c.ID) {
		return journal.Malformed(errors.New("it has an answer that the run does not wait for"))
	}
	return r.turn(ctx, func() *program.State { return r.state.Answer(c.ID, c.Answer, c.At) })
}

// awaits tells whether the run waits for a call.
func (r *run) awaits(id uint64) bool {
	return slices.ContainsFunc(r.state.Open(), func(s *program.Step) bool { return s.ID == id && s.Request != nil })
}

// beside is an entry as it is written with an attempt's effect.
func (n *notes) beside(e journal.Entry) *attempt.Note {
	if n == nil {
		return nil
	}
	return n.Beside(n.destination, e)
}

// entry is what a call has answered as it is noted, behind other entries, and as it is read.
func (n *notes) entry(w *work, behind []journal.Entry) (e journal.Entry, err error) {
	if n == nil {
		return e, nil
	}
	if e, err = n.Entry(journal.Call{ID: w.step.ID, At: n.latest, Answer: *w.answer}, behind...); err == nil {
		*w.answer = e.Call.Answer
	}
	return e, err
}

// clock is the time by which the run goes on: never before what was noted last, since nodes have clocks of their own, and as it is read.
func (n *notes) clock() time.Time {
	if now := time.Now().Round(0); now.After(n.latest) { // without Go's monotonic reading
		n.latest = now
	}
	return n.latest
}

// owns fails when another node may have the run.
func (n *notes) owns(now time.Time) error {
	if n == nil || now.Before(n.Until()) {
		return nil
	}
	return journal.ErrSilent
}

const (
	// renewEvery is how often an owner says that it is there, and renewAgain when it does so once more if the store did not hear it.
	renewEvery, renewAgain = journal.Lease / 3, 200 * time.Millisecond
	// releaseMost bounds the last word about a run that has not ended.
	releaseMost = 2 * time.Second
)

// keepOwning says that the run has its owner, until ctx ends. If it has none any more, or perhaps another one, it cancels.
func (n *notes) keepOwning(ctx context.Context, cancel context.CancelCauseFunc) {
	timer := time.NewTimer(renewEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		asking, end := context.WithDeadline(ctx, n.Until())
		err := n.Renew(asking)
		end()
		switch {
		case err == nil:
			timer.Reset(renewEvery)
		case errors.Is(err, journal.ErrTakenOver), n.owns(time.Now()) != nil:
			cancel(err)
			return
		default:
			timer.Reset(renewAgain)
		}
	}
}

// release lets a request that comes again go on with a run that has not ended.
func (n *notes) release(ctx context.Context) {
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseMost)
	defer cancel()
	_ = n.Release(ctx) // then it is free a little later
}

// end notes what a run has come to, before the client hears of it, which may have left.
func (n *notes) end(ctx context.Context, e journal.End) error {
	if n == nil {
		return nil
	}
	return n.End(context.WithoutCancel(ctx), e)
}

// ofTheNode tells whether a call has failed for the sake of this node alone: on another one, or later, it may not. That is no answer of the function's.
func ofTheNode(err error) bool {
	switch problem.ReasonOf(err) {
	case problem.ReasonDaemonStopping, reasonInFlight:
		return true
	}
	return false
}

// retryAfter has clients come again a second later, of a request that is being answered (RFC 9110, section 10.2.3).
func retryAfter(w http.ResponseWriter, err error) {
	if problem.ReasonOf(err) == journal.ReasonInProgress {
		w.Header().Set("Retry-After", "1")
	}
}
