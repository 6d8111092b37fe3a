package peers

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// answersMost is how many questions a node answers at a time, which namespaces share. Each has at most one block
	// on its way, and some 64 KiB in memory.
	answersMost = 512
	// answersEach is how many of them another node may have.
	answersEach = 64
	// copySize is how much of a block is in memory while it is sent.
	copySize = 64 << 10
)

// Beside answers what comes by HTTP/2, and has h serve the rest: requests that nodes hand over come by HTTP/1.1.
func (p *Peers) Beside(h http.Handler) http.Handler {
	own := p.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			own.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Register has a server of HTTP also take HTTP/2 by connections that agree on it (ALPN).
func Register(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: answersEach, SendPingTimeout: pingAfter, PingTimeout: pingAfter}
}

// Handler answers the questions of other nodes, which come by mutual TLS.
func (p *Peers) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := p.serve(w, r)
		if err != nil { // as long as nothing of an answer was sent
			answer = problem.Of(err).Title
			problem.Write(w, err, "", "")
		}
		p.metrics.answered.WithLabelValues(answer).Inc()
	})
}

// serve returns what it has answered, or why it has not.
func (p *Peers) serve(w http.ResponseWriter, r *http.Request) (string, error) {
	node, err := "", peertls.ErrNoPeer
	if r.TLS != nil {
		node, err = peertls.PeerName(*r.TLS)
	}
	if err != nil {
		return "", problem.New(http.StatusForbidden, "PeerNotAllowed", "", err.Error())
	}
	q, err := parseQuestion(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodGet || r.URL.Path != path {
		return "", problem.New(http.StatusBadRequest, "PeerQuestionMalformed", "", "this is no question for an object")
	}
	key, err := p.admit(node, q, r.Header.Get("Authorization"))
	if err != nil {
		return "", err
	}
	leave, why := p.enter(node, q.Namespace)
	if leave == nil {
		return "", problem.New(http.StatusServiceUnavailable, reasonBusy, "", "the node answers "+why)
	}
	defer leave()
	ctx, cancel := context.WithCancel(fair.For(r.Context(), q.Namespace))
	defer cancel()
	defer context.AfterFunc(p.over, cancel)()
	a := &answer{p: p, node: node, key: key, q: q, ctx: ctx,
		out: bufio.NewWriterSize(w, copySize), control: http.NewResponseController(w)}
	copied, kind, err := a.find()
	if copied != nil {
		defer copied.Close()
	}
	if err != nil || kind != "" {
		return kind, err
	}
	return a.send(copied), nil
}

// enter takes a place for a node's question for a namespace, until leave is called; it is nil if there is none.
func (p *Peers) enter(node, namespace string) (leave func(), why string) {
	back, why := p.namespaces.Try(namespace, "questions")
	if back == nil {
		return nil, why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking[node] >= answersEach {
		back()
		return nil, "as many questions of the other one as it may have"
	}
	p.asking[node]++
	return func() {
		back()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asking[node]--; p.asking[node] == 0 {
			delete(p.asking, node)
		}
	}, ""
}

// admit says how the node names what another one asks for, if that one may have it: it shows that it may have
// functions of the namespace, which may use the store.
func (p *Peers) admit(node string, q question, authorization string) (Key, error) {
	p.mu.Lock()
	keys := p.keys
	p.mu.Unlock()
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	pass := capability.Pass{Node: node, Namespace: q.Namespace}
	if err := pass.Admits(keys, token, time.Now()); err != nil || p.config.Objects == nil {
		return Key{}, problem.New(http.StatusForbidden, "PeerNotAllowed", "",
			"node "+node+" gets no objects here: "+capability.ErrPass.Error())
	}
	return p.config.Objects.Name(q.Namespace, q.Store, q.Reference)
}

// chosen refuses what the node does not have and is not one to ask the store for.
func (p *Peers) chosen(key Key, q question) error {
	if !q.Only && slices.Contains(p.choices(key), p.config.Node) {
		return nil
	}
	p.mu.Lock()
	digest := p.digest
	p.mu.Unlock()
	if q.Site != digest {
		return problem.New(http.StatusMisdirectedRequest, "PeerMembersDiffer", "", "the node knows other members")
	}
	return problem.New(http.StatusMisdirectedRequest, "PeerHasNone", "", "the node has no such object, nor owns it")
}

// join has a node take an object, from this node or from some others, until leave is called. leave is nil if a
// referral led to this node, and it has no room: the asker tries again.
func (p *Peers) join(of held, node string, only bool) (from []string, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.takers[of]
	if t == nil {
		t = &takers{serving: map[string]int{}}
	}
	from, joined := t.join(node, only)
	if !joined {
		return nil, nil
	}
	p.takers[of] = t
	return from, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.leave(node, len(from) > 0); t.answers == 0 {
			delete(p.takers, of) // what the others still have then, nobody knows
		}
	}
}
