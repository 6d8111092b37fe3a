package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const (
	// lateMost is how long a peer may take to begin to answer. That is long within a site: when an object is new to
	// all, many nodes ask at once, and each may need a handshake with a node that is busy with those of the others. A
	// process that has ended is noticed at once.
	lateMost = time.Second
	// stalledMost is how long a peer may take for the next block: a store that is slow gives 70 KB/s, and no peer
	// keeps a request with single bytes.
	stalledMost = 30 * time.Second
	// writeStalledMost is stalledMost of a write that a node has on its disk: it waits for no store.
	writeStalledMost = 10 * time.Second
	// aliveMost is after how long without data a connection is tested by a PING of HTTP/2, and how long the answer may
	// take: it depends on no function or store.
	aliveMost = time.Second
	// pingAfter finds connections whose asking end is gone.
	pingAfter = 5 * time.Second
	// idleMost keeps connections between nodes for the next question.
	idleMost = 90 * time.Second
	// frameMost is how much of a block is one frame of HTTP/2: large ones cost less.
	frameMost = 256 << 10
	// windowMost is how much of an answer may be on its way: 2 MiB is 1 Gbit/s for 16 ms, in which a block is written on
	// a busy machine, or 10 Gbit/s at 1.6 ms.
	windowMost = 2 << 20
)

// transport goes to members of the site, which URLs have as hosts.
func (p *Peers) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Protocols: protocols, DisableCompression: true, IdleConnTimeout: idleMost,
		HTTP2: &http.HTTP2Config{SendPingTimeout: p.alive, PingTimeout: p.alive, WriteByteTimeout: pingAfter,
			MaxReadFrameSize: frameMost, MaxReceiveBufferPerStream: windowMost,
			MaxReceiveBufferPerConnection: (fetchesMost + writesMost) * windowMost},
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
	node     string
	ctx      context.Context // ends when the peer is late
	cancel   context.CancelCauseFunc
	patience time.Duration // for the next frame
	body     io.ReadCloser
	frames   *bufio.Reader
}

// ask asks a node, and returns when that begins to answer. The stream is to be closed in any case.
func (p *Peers) ask(ctx context.Context, node string, q question) (s *stream, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s = &stream{node: node, ctx: ctx, cancel: cancel, patience: p.patience}
	if q.Write != "" {
		s.patience = min(s.patience, writeStalledMost)
	}
	defer time.AfterFunc(p.late, func() { cancel(errSilent) }).Stop()
	p.mu.Lock()
	q.Site = p.site
	p.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node+q.path()+"?"+q.query(), nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("Authorization", "Bearer "+p.pass(q.Namespace))
	res, err := p.client.Do(req) //nolint:bodyclose // the stream's close does
	if err != nil {
		return s, err
	}
	s.body, s.frames = res.Body, bufio.NewReaderSize(res.Body, copySize)
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("a peer answers with status %d", res.StatusCode)
	}
	return s, err
}

// about reads what the object is. If it is of the version that is held, the error is a *source.Unchanged.
func (s *stream) about(heldVersion string) (o source.Object, err error) {
	kind, body, err := s.next(nil)
	switch {
	case err != nil:
		return o, err
	case kind == frameSame && heldVersion != "":
		same := &source.Unchanged{From: s.node}
		if err := json.Unmarshal(body, same); err != nil {
			return o, err
		}
		return o, same
	case kind != frameObject:
		return o, fmt.Errorf("a peer begins its answer with a frame %q", kind)
	}
	o, err = parseObject(body)
	o.From = s.node
	return o, err
}

// next returns the next frame, in room if that is large enough. The rest of a failure is its error.
func (s *stream) next(room []byte) (kind byte, body []byte, err error) {
	defer time.AfterFunc(s.patience, func() { s.cancel(errStalled) }).Stop()
	kind, n, err := readHead(s.frames)
	if err != nil {
		return 0, nil, err
	}
	if body = room; n > len(room) {
		body = make([]byte, n)
	}
	if _, err = io.ReadFull(s.frames, body[:n]); err != nil {
		return 0, nil, err
	}
	if kind == frameFailed {
		return 0, nil, parseFailure(body[:n])
	}
	return kind, body[:n], nil
}

// explain tells the cause of an error that the context's end has brought about.
func (s *stream) explain(err error) error {
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func (s *stream) close() {
	s.cancel(context.Canceled)
	if s.body != nil {
		_ = s.body.Close() // it was only read from
	}
}
