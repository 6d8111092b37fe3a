package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// peerDialTimeout: a node may be a slow edge link away, but not gone for longer.
	peerDialTimeout = 5 * time.Second
	// peerSilence is how long a peer may say nothing, not even that it has what was sent:
	// then its node is gone, and whoever waits for it is told.
	peerSilence = 9 * time.Second
	// peerIdle keeps connections between nodes for the next request: a new one costs
	// two round trips. A daemon that ends closes them, so that none is stale for long.
	peerIdle = 90 * time.Second
	// peerFirst is how much later than the instance's node this one gives up: the other
	// knows better what went wrong. With deliveryGrace it is less than the 5 s that the
	// gateway waits longer still.
	peerFirst = 2 * time.Second
	// lastWords is how long a daemon without a core to spare may take to read what another one
	// has said before it closed the connection.
	lastWords = 2 * time.Second
)

// NewPeerTransport returns a transport to other nodes' daemons, which have their address
// in their certificate. client returns the configuration for one connection to a host: a
// node's certificate may be renewed between two. opened hears of each connection, and closed
// is called when that ends; it may be nil.
func NewPeerTransport(client func(host string) (*tls.Config, error), opened func(*tls.Conn) (closed func())) *http.Transport {
	if opened == nil {
		opened = func(*tls.Conn) func() { return func() {} }
	}
	dialer := &net.Dialer{Timeout: peerDialTimeout, Control: silence,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerSilence / 3, Interval: peerSilence / 3, Count: 3}}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, fmt.Errorf("dialing a peer: %w", err)
			}
			conf, err := client(host)
			if err != nil {
				return nil, fmt.Errorf("dialing a peer: %w", err)
			}
			ctx, cancel := context.WithTimeout(ctx, 2*peerDialTimeout) // the handshake's, too
			defer cancel()
			c, err := (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, network, address)
			if err != nil {
				// Nobody gets a request by a connection that is not secured, either: its node may
				// have died meanwhile, or another one may have its address now.
				return nil, &net.OpError{Op: opDial, Net: "tls", Err: err}
			}
			conn := c.(*tls.Conn) // as it says
			return newPeerConn(conn, opened(conn)), nil
		},
		DisableCompression:     true,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: answerHeadLimit,
		IdleConnTimeout:        peerIdle,
	}
}

// peerConn is a connection to another node's daemon.
type peerConn struct {
	*tls.Conn
	ending
	closed func()
}

func newPeerConn(c *tls.Conn, closed func()) *peerConn {
	return &peerConn{Conn: c, ending: newEnding(), closed: closed}
}

// Close ends the connection at once, what is still on its way in it included. The other side
// would hear of the end only behind all that, for which it may have no room (RFC 9293, section
// 3.10.4). Nobody reads from it any more, which a failed Write need not wait for then.
func (c *peerConn) Close() error {
	defer c.end(net.ErrClosed)
	c.closed()
	if tcp, is := c.NetConn().(*net.TCPConn); is && unsent(tcp) > 0 {
		_ = tcp.SetLinger(0) // of a connection that has ended already
	}
	return c.Conn.Close()
}

// carry prepares the connection for a body of that many bytes, -1 for any number: one that the
// other side's kernel may have no room for can wait for its function in the connection.
func (c *peerConn) carry(body int64) {
	patience := peerSilence
	if body < 0 || body > windowful {
		patience = 0
	}
	tcp, is := c.NetConn().(syscall.Conn)
	if !is {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = bound(raw, patience) // of a connection that has ended already
	}
}

func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard(err)
	return n, err
}

// Write fails when all that came before the connection's end has been read, when it is closed, or
// after lastWords: a transport takes a failed write for the request's end, and the other side may have answered
// before it closed.
func (c *peerConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-c.over().Done():
		case <-late.C:
		}
	}
	return n, err
}

// handOver sends the request to the daemon of the instance's node, which fetches a stored
// input by itself: over there the way from the store is as short as it can be. A body in the
// buffer follows as it comes, and stays here until the request is over: should that node be
// gone before the delivery, another one gets it from its start.
func (in *Ingress) handOver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, bound *nodeapi.Bound) (err error) {
	in.release(ctx, p)
	ctx, cancel := context.WithDeadline(ctx, p.deadline.Add(p.function.GetRequestTimeout().AsDuration()+peerFirst))
	defer cancel()
	ctx, span := tracer.Start(ctx, tracing.Transfer, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.TransferKind.String(tracing.TransferPeer)))
	// The transfer is over when the other node has what it needs to begin: the head.
	head := sync.OnceFunc(func() { span.End() })
	defer func() { endSpan(span, err) }()
	size := r.ContentLength
	if r.Header.Get("Upgrade") != "" {
		size = -1 // what follows is no body, and can wait as one
	}
	var there progress
	connected := func(i httptrace.GotConnInfo) {
		if c, is := i.Conn.(*peerConn); is {
			c.carry(size)
		}
	}
	return in.proxy(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: connected, WroteHeaders: head, Got1xxResponse: there.heard}), w, r, hop{
		id:     p.id,
		body:   p.body,
		via:    in.peers,
		daemon: true,
		prepare: func(out *http.Request) {
			out.URL.Scheme, out.URL.Host = "https", bound.GetPeerAddress()
			// Set anew: a client's Connection header can name any of them for removal.
			out.Header.Set(filterapi.HeaderRequest, p.id)
			out.Header.Set(filterapi.HeaderFunction, p.function.GetName())
			out.Header.Set(filterapi.HeaderInstance, bound.GetInstance())
			out.Header.Del(filterapi.HeaderInput)
			if p.reference != "" {
				out.Header.Set(filterapi.HeaderInput, p.reference)
			}
			setDepth(out.Header, p.depth)
			out.Header.Del(filterapi.HeaderProtocol)
			if protocol(r) == protocolH2 {
				out.Header.Set(filterapi.HeaderProtocol, protocolH2)
			}
			out.Header.Del(filterapi.HeaderProgress)
			if out.Header.Get("Expect") == "" { // another word before the answer
				out.Header.Set(filterapi.HeaderProgress, progressAsked)
				there.asked = true
			}
			tracing.Inject(ctx, out.Header)
		},
		explain: func(err error, midway bool) error {
			node := "the daemon of the instance's node " + bound.GetNode()
			switch {
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				return because(problem.New(http.StatusGatewayTimeout, "PeerTimeout", "", node+" did not answer in time"), err)
			case midway: // it knows why, unless it is gone, which the control plane sees
				return reported{because(problem.New(http.StatusBadGateway, "PeerFailed", "", node+" broke its answer off; it has died, or an event of the function's says why"), err)}
			}
			if _, own := errors.AsType[*problem.Problem](err); own { // this node's buffer has lost the body
				return err
			}
			unreachable := because(problem.New(http.StatusBadGateway, reasonPeerUnreachable, "", node+" did not answer"), err)
			if there.undelivered(err) {
				return undelivered{unreachable}
			}
			return unreachable
		},
	})
}
