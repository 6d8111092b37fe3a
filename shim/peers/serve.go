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
	"github.com/headstart-mesh/headstart/shim/objects"
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

// Beside answers the questions of other nodes, which come by HTTP/2 over mutual TLS, and has h serve the rest: requests that
// nodes hand over come by HTTP/1.1.
func (p *Peers) Beside(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(p.over, cancel)()
		a := &answer{p: p, ctx: ctx, out: bufio.NewWriterSize(w, copySize), control: http.NewResponseController(w)}
		said, err := a.serve(r)
		if err != nil {
			said = a.end(err)
		}
		p.metrics.answered.WithLabelValues(said).Inc()
	})
}

// Register has a server of HTTP also take HTTP/2 by connections that agree on it (ALPN).
func Register(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: answersEach, SendPingTimeout: pingAfter, PingTimeout: pingAfter}
}

// serve returns what it has answered, or what there is to answer in place of an object.
func (a *answer) serve(r *http.Request) (said string, err error) {
	err = peertls.ErrNoPeer
	if r.TLS != nil {
		a.node, err = peertls.PeerName(*r.TLS)
	}
	if err != nil {
		return "", notAllowed(err.Error())
	}
	a.q, err = parseQuestion(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodGet || r.URL.Path != a.q.path() {
		return "", errMalformed
	}
	if a.key, err = a.p.admit(a.node, a.q, r.Header.Get("Authorization")); err != nil {
		return "", err
	}
	leave := a.p.enter(a.node, a.q.Namespace)
	if leave == nil {
		return "", errBusy
	}
	defer leave()
	a.ctx = context.WithValue(fair.For(a.ctx, a.q.Namespace), asked{}, true)
	c, err := a.find()
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return "", err
	}
	return a.send(c)
}

// enter takes a place for a node's question for a namespace, until leave is called; it is nil if there is none.
func (p *Peers) enter(node, namespace string) (leave func()) {
	back, _ := p.namespaces.Try(namespace, "questions")
	if back == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking[node] >= answersEach {
		back()
		return nil
	}
	p.asking[node]++
	return func() {
		back()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asking[node]--; p.asking[node] == 0 {
			delete(p.asking, node)
		}
	}
}

// admit says how the node names what another one asks for, if that one may have it: it shows that it may have
// functions of the namespace, which may use the store.
func (p *Peers) admit(node string, q question, authorization string) (objects.Key, error) {
	p.mu.Lock()
	keys := p.keys
	p.mu.Unlock()
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	pass := capability.Pass{Node: node, Namespace: q.Namespace}
	if err := pass.Admits(keys, token, time.Now()); err != nil || p.config.Objects == nil {
		return objects.Key{}, notAllowed("node " + node + " gets no objects here: " + capability.ErrPass.Error())
	}
	return p.config.Objects.Name(q.Namespace, q.Store, q.Reference)
}

// chosen refuses a question for an object that the node does not have, unless it is one of those to ask the store.
func (p *Peers) chosen(key objects.Key, q question) error {
	p.mu.Lock()
	differ := q.Site != p.site
	p.mu.Unlock()
	switch {
	case !q.Only && slices.Contains(p.choices(key), p.config.Node):
		return nil
	case differ:
		return errMembersDiffer
	}
	return errHasNone
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
