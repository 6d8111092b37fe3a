package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

var (
	// ErrNoShim is why nothing was done: the sandbox's shim is not there, or has gone.
	ErrNoShim = errors.New("the sandbox's shim is not there")
	// ErrUnclear is of Join: the shim may have the streams, or not. Nobody else is to read them: close them.
	ErrUnclear = errors.New("the sandbox's shim has not said whether it has the streams")
)

// Hub is the daemon's side, of all sandboxes.
type Hub struct {
	// Connect is asked whether the daemon takes a program's connection to one of the sandbox's targets; nil: the program
	// connects on its own. take is called once, with the other end, which is within the sandbox's network and the callee's,
	// or with nil if none comes. It is not to wait. ahead is once for each target of a sandbox, before a program connects:
	// the first connection waits for nothing. Connect is set before Serve; nil: the daemon takes none.
	Connect func(ctx context.Context, sandbox string, at netip.AddrPort, ahead bool) (take func(program net.Conn), err error)
	// Lapse hears that a sandbox's shim asks about no connections: a reason, and why, in words. It is set before
	// Serve; nil: nobody hears.
	Lapse func(sandbox, reason, why string)
	// Rekeyed hears that joined streams have ended, since the server has changed its TLS keys. It is set before Serve;
	// nil: nobody hears.
	Rekeyed func()
	// Callers are where the daemon asks programs from, where that is not the node itself. They are set before Serve.
	Callers []netip.Addr

	log *slog.Logger

	mu      sync.Mutex
	shims   map[string]*conversation
	targets map[string][]netip.AddrPort
	came    chan struct{} // closed when the next shim comes
}

// NewHub returns a hub without shims.
func NewHub(log *slog.Logger) *Hub {
	return &Hub{log: log, shims: map[string]*conversation{}, targets: map[string][]netip.AddrPort{},
		came: make(chan struct{})}
}

// Serve returns what converses with the shims that come to a listener until ctx ends.
func (h *Hub) Serve(ctx context.Context) func(net.Listener) error {
	return descriptors.Accept(ctx, h.log, func(ctx context.Context, c *net.UnixConn) {
		if err := h.take(ctx, c); err != nil {
			h.log.Warn("a shim is not spoken with", "error", err)
		}
	})
}

// take converses with one shim. Its errors are of its beginning: each shim ends at some point.
func (h *Hub) take(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(Timeout)); err != nil {
		return fmt.Errorf("bounding the first message: %w", err)
	}
	first, err := receive(conn)
	descriptors.CloseAll(first.files)
	if err == nil && (first.Sandbox == "" || len(first.files) > 0) {
		err = errors.New("the first message names no sandbox")
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return err
	}
	sandbox := first.Sandbox
	c := newConversation(conn)
	e := &ends{awaited: map[uint64]func(net.Conn){}}
	defer e.close()
	c.answer = func(ctx context.Context, question parcel) (parcel, func(error)) {
		return h.answer(ctx, sandbox, e, question), nil
	}
	c.hear = func(m parcel) {
		if m.End != 0 {
			e.came(m)
		}
		if m.Lapse != "" && h.Lapse != nil {
			h.Lapse(sandbox, m.Lapse, m.Error)
		}
		if m.Rekeyed && h.Rekeyed != nil {
			h.Rekeyed()
		}
	}
	h.enter(sandbox, c)
	defer h.leave(sandbox, c)
	_ = c.run(ctx) // a shim ends with its sandbox
	return nil
}

func (h *Hub) enter(sandbox string, c *conversation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.shims[sandbox]; before != nil {
		_ = before.conn.Close() // its shim has given it up
	}
	h.shims[sandbox] = c
	if len(h.Callers) > 0 {
		callers := make([]string, len(h.Callers))
		for i, a := range h.Callers {
			callers[i] = a.String()
		}
		_ = c.send(parcel{message: message{Callers: &callers}}) // else the conversation is over
	}
	if targets := h.targets[sandbox]; len(targets) > 0 {
		_ = c.send(parcel{message: message{Targets: text(targets)}}) // else the conversation is over
	}
	close(h.came)
	h.came = make(chan struct{})
}

func (h *Hub) leave(sandbox string, c *conversation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shims[sandbox] == c {
		delete(h.shims, sandbox)
	}
}

// shim waits for the shim of a sandbox until ctx ends.
func (h *Hub) shim(ctx context.Context, sandbox string) (*conversation, error) {
	for {
		h.mu.Lock()
		c, came := h.shims[sandbox], h.came
		h.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNoShim, ctx.Err())
		}
	}
}

// Targets has the shim of a sandbox ask about connections to these addresses, TargetsLimit at most, instead of those
// before. They hold for its later conversations, too, until the caller sets none.
func (h *Hub) Targets(sandbox string, all []netip.AddrPort) {
	all = slices.Clone(all[:min(len(all), TargetsLimit)])
	h.mu.Lock()
	defer h.mu.Unlock()
	h.targets[sandbox] = all
	if len(all) == 0 {
		delete(h.targets, sandbox)
	}
	if c := h.shims[sandbox]; c != nil {
		_ = c.send(parcel{message: message{Targets: text(all)}}) // else the conversation is over
	}
}

// Stop has a sandbox's shim end the program of the container whose network it has closed. It waits for the shim until ctx ends.
func (h *Hub) Stop(ctx context.Context, sandbox string) error {
	return h.say(ctx, sandbox, message{Stop: true})
}

// Open has a sandbox's shim open the network again that it has closed. It waits for the shim until ctx ends.
func (h *Hub) Open(ctx context.Context, sandbox string) error {
	return h.say(ctx, sandbox, message{Open: true})
}

// say says a word to a sandbox's shim.
func (h *Hub) say(ctx context.Context, sandbox string, word message) error {
	c, err := h.shim(ctx, sandbox)
	if err == nil {
		err = c.send(parcel{message: word})
	}
	if err != nil {
		return fmt.Errorf("speaking with a sandbox's shim: %w", err)
	}
	return nil
}

// Dial has a sandbox's shim connect to an address in the sandbox's network. It waits for the shim until ctx ends.
func (h *Hub) Dial(ctx context.Context, sandbox string, at netip.AddrPort) (net.Conn, error) {
	c, err := h.shim(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	question := message{Dial: canonical(at).String()}
	if end, bounded := ctx.Deadline(); bounded {
		question.Timeout = max(time.Until(end), time.Millisecond).String()
	}
	answer, _, err := c.ask(ctx, parcel{message: question})
	defer descriptors.CloseAll(answer.files)
	switch {
	case errors.Is(err, errOver):
		return nil, fmt.Errorf("%w: %w", ErrNoShim, err)
	case err != nil:
	case answer.err() != nil:
		err = answer.err()
	case len(answer.files) != 1:
		err = fmt.Errorf("an answer with %d descriptors", len(answer.files))
	default:
		var conn stream
		if conn, err = streamOf(answer.files[0]); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("dialling %s in a sandbox: %w", at, err)
}

// Join has a sandbox's shim copy between two connections from now on. Without an error the caller closes its own
// copies, of which it has read all that it will. It waits for the shim until ctx ends.
func (h *Hub) Join(ctx context.Context, sandbox string, client, server net.Conn) error {
	c, err := h.shim(ctx, sandbox)
	if err != nil {
		return err
	}
	var files []*os.File
	defer func() { descriptors.CloseAll(files) }()
	for _, conn := range []net.Conn{client, server} {
		f, err := fileOf(conn)
		if err != nil {
			return fmt.Errorf("handing a stream to a sandbox's shim: %w", err)
		}
		files = append(files, f)
	}
	answer, sent, err := c.ask(ctx, parcel{message: message{Join: true}, files: files})
	descriptors.CloseAll(answer.files)
	switch {
	case err == nil && answer.err() == nil:
		return nil
	case err == nil:
		err = answer.err()
	case sent:
		err = fmt.Errorf("%w: %w", ErrUnclear, err)
	default:
		err = fmt.Errorf("%w: %w", ErrNoShim, err)
	}
	return fmt.Errorf("joining the streams of a sandbox: %w", err)
}

func (h *Hub) answer(ctx context.Context, sandbox string, e *ends, question parcel) parcel {
	defer descriptors.CloseAll(question.files)
	at, err := netip.ParseAddrPort(question.Connect)
	if err != nil || h.Connect == nil || len(question.files) > 0 { // an earlier shim's
		return parcel{message: message{Pass: true}}
	}
	take, err := h.Connect(ctx, sandbox, canonical(at), question.Ahead)
	if err != nil {
		return parcel{message: failure(err)}
	}
	return parcel{message: message{Pass: take == nil || !e.await(question.message, take)}}
}
