package uplink

import (
	"context"
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// activation is a question that waits for its answer, over as many streams as it takes.
type activation struct {
	message *nodeapi.NodeMessage
	sent    bool        // on the present stream
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
		return nil, problem.New(http.StatusBadRequest, "InputReferenceMalformed", "headstart.dev/input", "the input reference is malformed: it is not UTF-8")
	}
	if !u.ask(a.GetRequest(), act) {
		return nil, problem.New(http.StatusConflict, "DuplicateRequest", "x-headstart-request", "a request with this id is being activated")
	}
	select {
	case ans := <-act.answer:
		return ans.bound, ans.err
	case <-ctx.Done():
		u.withdraw(a.GetRequest(), act)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, problem.New(http.StatusGatewayTimeout, "ActivationTimeout", "",
				"the control plane placed no instance in time; `headstart status` shows whether it runs and has nodes")
		}
		return nil, ctx.Err()
	}
}

func (u *Uplink) ask(request string, act *activation) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.open[request]; taken {
		return false
	}
	u.open[request] = act
	signal(u.asked)
	return true
}

// withdraw forgets a question that nobody waits for any more. Another of the same
// request stays: it came after this one's answer.
func (u *Uplink) withdraw(request string, act *activation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[request] == act {
		delete(u.open, request)
	}
}

// askAnew begins a stream, which has heard no question yet.
func (u *Uplink) askAnew() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, act := range u.open {
		act.sent = false
	}
}

// unasked returns the questions that the present stream is to hear.
func (u *Uplink) unasked() (all []*nodeapi.NodeMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, act := range u.open {
		if !act.sent {
			act.sent = true
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

// refusal is the control plane's word for the caller. A status that is no error of HTTP
// cannot be answered with.
func refusal(r *nodeapi.Refused) *problem.Problem {
	status := int(r.GetStatus())
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	return problem.New(status, r.GetReason(), r.GetField(), r.GetMessage())
}
