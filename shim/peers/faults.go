package peers

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// fault is why a peer was asked in vain, as the asker finds it.
type fault struct {
	reason string        // for the metric
	avoid  time.Duration // for how long that peer is asked nothing; 0: the fault is one of this object alone
	says   string
}

func (f *fault) Error() string { return f.says }

const (
	// avoidSilent is how long a node that did not answer is asked nothing, and avoidLiar one that sent a block with the
	// digest of another block.
	avoidSilent = 10 * time.Second
	avoidLiar   = 10 * time.Minute
)

var (
	errSilent   = &fault{"Silent", avoidSilent, "the peer does not begin to answer"}
	errStalled  = &fault{"Silent", 0, "the peer has nothing new"} // its store may be slow
	errLied     = &fault{"Lied", avoidLiar, "a block is not what its digest says"}
	errDisputed = &fault{"Lied", 0, "a block is not what the digest of the peer that refers to it says"} // one of them lies
	errChanged  = &fault{"Changed", 0, "the peer has another version of the object"}
	errReferral = &fault{"Referral", 0, "none of those that the peer refers to has the object"}
)

// What a peer says of itself, and not of its store.
var (
	errMalformed       = problem.New(http.StatusBadRequest, "PeerQuestionMalformed", "", "this is no question for an object")
	errBusy            = problem.New(http.StatusServiceUnavailable, "PeerBusy", "", "the node answers or serves as many as it can")
	errMembersDiffer   = problem.New(http.StatusMisdirectedRequest, "PeerMembersDiffer", "", "the node knows other members")
	errHasNone         = problem.New(http.StatusMisdirectedRequest, "PeerHasNone", "", "the node has no such object, nor owns it")
	errObjectChanged   = problem.New(http.StatusConflict, "PeerObjectChanged", "", "the store has another version")
	errObjectNotShared = problem.New(http.StatusConflict, "PeerObjectNotShared", "", "the object cannot be shared")
	errMayNotAsk       = problem.New(http.StatusServiceUnavailable, "PeerMayNotAsk", "",
		"a third node has the object, which the store does not have yet, and this one has no pass to ask for it")
)

func notAllowed(why string) *problem.Problem {
	return problem.New(http.StatusForbidden, "PeerNotAllowed", "", why)
}

// ownReasons are the titles of these. Others may be whatever a peer likes.
var ownReasons = map[string]bool{notAllowed("").Title: true, errMalformed.Title: true, errBusy.Title: true,
	errMembersDiffer.Title: true, errHasNone.Title: true, errMayNotAsk.Title: true, errObjectChanged.Title: true, errObjectNotShared.Title: true}

// failed notes that a peer was asked in vain, unless it says that nothing has changed, or nobody wants the object any more.
func (p *Peers) failed(ctx context.Context, node string, err error) {
	if _, same := errors.AsType[*source.Unchanged](err); same || ctx.Err() != nil {
		return
	}
	reason, avoid := "Failed", avoidSilent // the connection, or what came by it
	if found, is := errors.AsType[*fault](err); is {
		reason, avoid = found.reason, found.avoid
	} else if said, is := errors.AsType[*problem.Problem](err); is {
		if reason, avoid = "Refused", 0; ownReasons[said.Title] {
			reason = said.Title
		}
	}
	p.avoid(node, avoid)
	p.metrics.asked.WithLabelValues(reason).Inc()
	p.config.Log.Debug("a peer was asked in vain", "node", node, "error", err)
}

// avoid has the node ask another one nothing for some time.
func (p *Peers) avoid(node string, d time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.avoided, func(_ string, until time.Time) bool { return now.After(until) })
	if until := now.Add(d); until.After(p.avoided[node]) {
		p.avoided[node] = until
	}
}

// askable are those of some nodes that the node may ask now: other members that it has no reason to avoid.
func (p *Peers) askable(nodes []string) (some []string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, node := range nodes {
		if _, member := p.members[node]; member && node != p.config.Node && !now.Before(p.avoided[node]) {
			some = append(some, node)
		}
	}
	return some
}
