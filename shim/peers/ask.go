package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// lateMost is how long a peer may take to begin to answer. It is long for a site, where many ask at once when an
	// object is new to all: each of them may need a handshake with a node that is busy with the others'. A process
	// that has ended is noticed at once.
	lateMost = time.Second
	// silentMost is how long a peer may send nothing, not even that the answer is still to come: four times as
	// often it says so.
	silentMost = 4 * waitEvery
	// stalledMost is how long a peer may have nothing new: as long as a store that is away is asked, and then some.
	stalledMost = 15 * time.Second
	// pingAfter finds connections whose other end is gone.
	pingAfter = 5 * time.Second
	// idleMost keeps connections between nodes for the next question.
	idleMost = 90 * time.Second
	// frameMost is how much of a block is one frame of HTTP/2: large ones cost less.
	frameMost = 256 << 10
	// windowMost is how much of an answer may be on its way: 3 MiB are 10 Gbit/s at 2.5 ms.
	windowMost = 3 << 20
	// problemMost bounds the problem details of a peer, in bytes.
	problemMost = 4 << 10
)

// errSilent says that a peer did not answer in time.
var errSilent = errors.New("the peer sends nothing")

// transport goes to members of the site, which URLs have as hosts.
func (p *Peers) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Protocols: protocols, DisableCompression: true, IdleConnTimeout: idleMost,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter, WriteByteTimeout: pingAfter,
			MaxReadFrameSize: frameMost, MaxReceiveBufferPerStream: windowMost, MaxReceiveBufferPerConnection: windowMost},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			node, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			at, known := p.address(node)
			if !known {
				return nil, fmt.Errorf("%s is no member of the site", node)
			}
			host, _, err := net.SplitHostPort(at)
			if err != nil {
				return nil, err
			}
			conf, err := p.config.Client(node, host)
			if err != nil {
				return nil, err
			}
			conf = conf.Clone()
			conf.NextProtos = []string{Protocol}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: p.late}, Config: conf}).DialContext(ctx, network, at)
		},
	}
}

// Protocol is what connections for questions agree on in their TLS handshake (ALPN): HTTP/2.
const Protocol = "h2"

// stream is a peer's answer.
type stream struct {
	node   string
	ctx    context.Context // ends when the peer is silent
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	frames *bufio.Reader
	silent *time.Timer
	// silence is when that runs out.
	silence time.Duration

	object Object
	same   *Unchanged // nil: it is another object than the one that is held
}

// ask asks a node, and returns when it knows of the object.
func (p *Peers) ask(ctx context.Context, node string, q question) (s *stream, err error) {
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	s = &stream{node: node, ctx: ctx, cancel: cancel, silence: p.silence}
	s.silent = time.AfterFunc(p.late, func() { cancel(errSilent) })
	defer func() {
		if err != nil {
			err = s.explain(err)
			s.close()
			p.failed(asked, node, err)
		}
	}()
	p.mu.Lock()
	q.Site = p.digest
	p.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node+path+"?"+q.query(), nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("Authorization", "Bearer "+p.pass(q.Namespace))
	res, err := p.client.Do(req) //nolint:bodyclose // the stream's close does
	if err != nil {
		return s, err
	}
	s.body = res.Body
	if res.StatusCode != http.StatusOK {
		return s, refused(res)
	}
	s.frames = bufio.NewReaderSize(watched{s}, copySize)
	kind, n, err := s.next()
	if err != nil {
		return s, err
	}
	if kind != frameSame && kind != frameObject {
		return s, fmt.Errorf("a peer begins its answer with a frame %q", kind)
	}
	body, err := readBody(s.frames, n)
	if err != nil {
		return s, err
	}
	if kind == frameSame {
		s.same = &Unchanged{From: node}
		return s, json.Unmarshal(body, s.same)
	}
	s.object, err = parseObject(body)
	s.object.From = node
	return s, err
}

// refused is the problem that a peer answers with.
func refused(res *http.Response) error {
	var said problem.Problem
	err := json.NewDecoder(io.LimitReader(res.Body, problemMost)).Decode(&said)
	if err != nil || !problem.IsTitle(said.Title) {
		return fmt.Errorf("a peer answers with status %d", res.StatusCode)
	}
	return refusal(said.Title)
}

// next returns the head of the next frame that is not frameWait. The rest of a failure is its error.
func (s *stream) next() (kind byte, n int, err error) {
	for began := time.Now(); ; {
		kind, n, err = readHead(s.frames)
		switch {
		case err != nil:
			return 0, 0, err
		case kind == frameFailed:
			body, err := readBody(s.frames, n)
			if err == nil {
				err = parseFailure(body)
			}
			return 0, 0, err
		case kind != frameWait:
			return kind, n, nil
		case time.Since(began) > stalledMost:
			return 0, 0, errSilent
		}
	}
}

// watched is the answer's body: what comes of it says that the peer is there.
type watched struct{ s *stream }

func (w watched) Read(p []byte) (int, error) {
	w.s.silent.Reset(w.s.silence)
	n, err := w.s.body.Read(p)
	w.s.silent.Stop() // what this node does with it is no matter of the peer's
	return n, err
}

// explain tells the cause of an error that the context's end has brought about.
func (s *stream) explain(err error) error {
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func (s *stream) close() {
	s.silent.Stop()
	s.cancel(context.Canceled)
	if s.body != nil {
		_ = s.body.Close() // it was only read from
	}
}
