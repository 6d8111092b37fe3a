package uplink

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// askOthersAfter is how long the followed control plane has a question for itself, if it does not
// hang: it may not see the cluster, and another one may. A cluster places an instance within a
// second or two; when it takes longer, a second answer does no harm.
const askOthersAfter = 3 * time.Second

// activation is a question that waits for its answer, over as many streams as it takes.
type activation struct {
	message *nodeapi.NodeMessage
	asked   []*stream   // those that have the question on their present connection
	anybody bool        // it is not for the followed one only
	refused error       // by one that is not followed
	answer  chan answer // holds one
}

type answer struct {
	bound *nodeapi.Bound
	err   error
}

// Activate asks for an instance and waits until the request is bound to one. The
// question survives reconnects. An error is a *problem.Problem or ctx's.
func (u *Uplink) Activate(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
	act := &activation{message: &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: a}}, answer: make(chan answer, 1)}
	if !sendable(act.message) { // of all that is in it, only the input is a client's to choose
		return nil, problem.New(
			http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, filterapi.AnnotationInput,
			"the input reference is malformed: it is not UTF-8",
		)
	}
	if !u.ask(a.GetRequest(), act) {
		return nil, problem.New(
			http.StatusConflict, problem.ReasonDuplicateRequest, filterapi.HeaderRequest,
			"a request with this id is being activated",
		)
	}
	late, others := time.NewTimer(doubtAfter), time.NewTimer(askOthersAfter)
	defer late.Stop()
	defer others.Stop()
	for {
		select {
		case ans := <-act.answer:
			return ans.bound, ans.err
		case <-late.C:
			u.doubt()
		case <-others.C:
			u.askAnybody(act)
		case <-ctx.Done():
			refused := u.withdraw(a.GetRequest(), act)
			switch {
			case !errors.Is(ctx.Err(), context.DeadlineExceeded):
				return nil, ctx.Err()
			case refused != nil:
				return nil, refused
			}
			return nil, problem.New(http.StatusGatewayTimeout, "ActivationTimeout", "",
				"the control plane placed no instance in time; `headstart status` shows whether it runs and has nodes")
		}
	}
}

func (u *Uplink) ask(request string, act *activation) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.open[request]; taken {
		return false
	}
	u.open[request] = act
	u.wake()
	return true
}

func (u *Uplink) askAnybody(act *activation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	act.anybody = true
	u.wake()
}

// withdraw forgets a question that nobody waits for any more, and returns why it was refused,
// if it was. Another of the same request stays: it came after this one's answer.
func (u *Uplink) withdraw(request string, act *activation) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[request] == act {
		delete(u.open, request)
	}
	return act.refused
}

// askAnew begins a connection, on which no question has been heard yet.
func (u *Uplink) askAnew(s *stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, act := range u.open {
		act.ask(s)
	}
}

// askFollowed has a control plane that is followed from now on asked what is open, also what it
// may have refused before, when that did not count; the caller holds mu.
func (u *Uplink) askFollowed(s *stream) {
	for _, act := range u.open {
		if act.refused != nil {
			act.ask(s)
		}
	}
	signal(s.news)
}

// ask has the stream asked, as if it had not been.
func (a *activation) ask(s *stream) {
	a.asked = slices.DeleteFunc(a.asked, func(other *stream) bool { return other == s })
}

// unasked returns the questions that a stream is to hear now. Before any control plane is
// followed, each hears them that may be.
func (u *Uplink) unasked(s *stream) (all []*nodeapi.NodeMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, act := range u.open {
		if (u.followed == s || u.followed == nil || act.anybody) && !slices.Contains(act.asked, s) {
			act.asked = append(act.asked, s)
			all = append(all, act.message)
		}
	}
	return all
}

func (u *Uplink) settle(request string, a answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if act, ok := u.open[request]; ok {
		delete(u.open, request)
		act.answer <- a
	}
}

// refused takes a control plane's refusal. That of one that is not followed may be wrong: it
// may not see all of the cluster. It counts when no better word comes.
func (u *Uplink) refused(s *stream, r *nodeapi.Refused) {
	u.mu.Lock()
	act, ok := u.open[r.GetRequest()]
	wait := ok && u.followed != nil && u.followed != s
	if wait {
		act.refused = refusal(r)
	}
	u.mu.Unlock()
	if !wait {
		u.settle(r.GetRequest(), answer{err: refusal(r)})
	}
}

// refusal is the control plane's word for the caller. A status that is no error of HTTP
// cannot be answered with.
func refusal(r *nodeapi.Refused) *problem.Problem {
	status := int(r.GetStatus())
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	return problem.New(status, problem.Reason(r.GetReason()), r.GetField(), r.GetMessage())
}
