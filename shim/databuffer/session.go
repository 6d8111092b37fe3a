package databuffer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// Session is a program's, whose start-up is over: it is logged in.
type Session struct {
	// Instance is the sandbox of the program.
	Instance string
	// Unread is what the program has sent already.
	Unread []byte
	// Protocol is the version of Redis' protocol that both speak.
	Protocol int
	// Client and Server are the program's and the store's end. They are the caller's to close.
	Client, Server net.Conn
	// Store is nil if the session is in another database, or another user's: all its commands wait for their turn then.
	Store *Store
}

// harmless are commands about the connection alone: nobody else can tell whether they were sent.
var harmless = map[string]bool{"PING": true, "ECHO": true, "COMMAND": true, "CLIENT SETNAME": true, "CLIENT SETINFO": true, "CLIENT GETNAME": true,
	"CLIENT ID": true}

// opening are commands after which replies are no more one for each command, or another user or database is in force.
var opening = map[string]bool{"SUBSCRIBE": true, "PSUBSCRIBE": true, "SSUBSCRIBE": true, "UNSUBSCRIBE": true, "PUNSUBSCRIBE": true,
	"SUNSUBSCRIBE": true, "MONITOR": true, "SYNC": true, "PSYNC": true, "RESET": true, "HELLO": true, "AUTH": true, "SELECT": true,
	"CLIENT REPLY": true}

// session is one at work. It belongs to the goroutine of run, but for what passes replies on.
type session struct {
	Session
	buffer *Buffer
	in     *bufio.Reader // of the program
	out    *bufio.Writer // to the store

	mu      sync.Mutex
	to      *bufio.Writer // to the program
	pending int           // replies that the store owes
	settled *sync.Cond    // pending is 0, or broken
	broken  error         // why no more replies come

	ahead *ahead          // the connection to copies; nil: none is open
	open  map[string]bool // MULTI and WATCH, at the store
	plain bool            // all commands are the store's: an opening one was sent
}

// errEngine is why an attempt cannot go on: what it works on is lost.
var errEngine = errors.New("the attempt's copies are lost")

// ahead is a connection to the copies of an attempt.
type ahead struct {
	net.Conn
	of   *copied
	in   *bufio.Reader
	open map[string]bool // MULTI and WATCH
}

// Pass passes a session's commands and replies on, until one of the two ends or ctx does.
func (b *Buffer) Pass(ctx context.Context, of Session) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{Session: of, buffer: b, in: bufio.NewReaderSize(&prefixed{of.Unread, of.Client}, lineMost), out: bufio.NewWriterSize(of.Server, lineMost),
		to: bufio.NewWriterSize(of.Client, lineMost), open: map[string]bool{}}
	s.settled = sync.NewCond(&s.mu)
	cut := func() { _, _ = of.Client.Close(), of.Server.Close() } // what is at work with them ends
	var replies sync.WaitGroup
	defer replies.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, cut)()
	replies.Go(func() {
		defer cancel()
		s.replies()
	})
	_ = s.run(ctx) // the program has left, or hears by the end of the connection that the store has
	s.leave()
	cut()
}

// prefixed reads what was read already first.
type prefixed struct {
	first []byte
	net.Conn
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// replies passes on what the store says.
func (s *session) replies() {
	in := bufio.NewReaderSize(s.Server, lineMost)
	var err error
	for err == nil {
		if _, err = in.Peek(1); err != nil {
			break
		}
		s.mu.Lock()
		var pushed bool
		if pushed, err = passReply(s.to, in); err == nil && in.Buffered() == 0 {
			err = s.to.Flush()
		}
		if !pushed {
			s.pending--
		}
		s.settled.Broadcast()
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	s.settled.Broadcast()
}

// run passes on what the program says.
func (s *session) run(ctx context.Context) error {
	for {
		if s.in.Buffered() == 0 {
			if err := s.out.Flush(); err != nil {
				return err
			}
		}
		c, err := readCommand(s.in)
		if err != nil {
			return err
		}
		if err := s.command(ctx, c); err != nil {
			return err
		}
	}
}

// command passes one on: to the copies before the turn of what the program works on, or else to the store, when it is its turn.
func (s *session) command(ctx context.Context, c *command) error {
	a := s.buffer.config.Current(s.Instance)
	if a == nil || a.InTurn() {
		s.buffer.config.Metrics.inTurn.Inc()
		s.leave()
		return s.ask(c)
	}
	if harmless[c.name()] || harmless[c.name()+" "+c.word(1)] {
		return s.ask(c)
	}
	err := errWait
	if !a.IsSquashed() {
		if err = s.askCopies(ctx, a, c); err == nil {
			s.buffer.config.Metrics.copied.Inc()
			return nil
		}
	}
	switch {
	case errors.Is(err, errTurn):
	case errors.Is(err, errWait):
		s.buffer.config.Metrics.waited.Inc()
		if err := s.out.Flush(); err != nil { // of what came before
			return err
		}
		if err := s.buffer.config.Turn(ctx, s.Instance); err != nil {
			return s.refuse(c, err.Error())
		}
	case errors.Is(err, errEngine):
		a.Squash()
		return s.refuse(c, attempt.ErrSquashed.Error())
	default:
		return err
	}
	s.leave()
	return s.ask(c)
}

// ask sends a command to the store.
func (s *session) ask(c *command) error {
	name := c.name()
	switch {
	case name == "SYNC" || name == "PSYNC":
		return s.refuse(c, name+" is not supported here")
	case opening[name] || opening[name+" "+c.word(1)]:
		s.plain = true
	}
	note(s.open, name)
	s.mu.Lock()
	s.pending++
	s.mu.Unlock()
	if _, err := s.out.Write(c.raw); err != nil {
		return err
	}
	return c.passRest(s.out, s.in)
}

// note notes what a command leaves open on its connection.
func note(open map[string]bool, name string) {
	switch name {
	case "MULTI", "WATCH":
		open[name] = true
	case "EXEC", "DISCARD":
		clear(open)
	case "UNWATCH":
		delete(open, "WATCH")
	}
}

// refuse answers a command with an error.
func (s *session) refuse(c *command, why string) error {
	return s.answer(func(to *bufio.Writer) error {
		if err := c.passRest(bufio.NewWriter(io.Discard), s.in); err != nil {
			return err
		}
		_, err := to.Write(failed(why))
		return err
	})
}

// answer has something be said to the program, when the store owes it no more replies.
func (s *session) answer(say func(to *bufio.Writer) error) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending > 0 && s.broken == nil && !s.plain {
		s.settled.Wait()
	}
	if s.broken != nil {
		return s.broken
	}
	if err := say(s.to); err != nil {
		return err
	}
	return s.to.Flush()
}

// askCopies has a command work on copies.
func (s *session) askCopies(ctx context.Context, a *attempt.Attempt, c *command) error {
	name := c.name()
	if s.Store == nil || s.plain || len(s.open) > 0 || !c.whole() {
		return errWait
	}
	var e entry
	var keys []string
	switch name {
	case "MULTI", "EXEC", "DISCARD", "UNWATCH":
	case "WATCH":
		for _, k := range c.words[1:] {
			keys = append(keys, string(k))
		}
	default:
		var ok bool
		if e, keys, ok = s.Store.table(ctx).uses(c); !ok {
			return errWait
		}
	}
	of, err := s.buffer.copyOf(a, s.Store)
	if err != nil {
		return err
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.over {
		if a.InTurn() {
			return errTurn
		}
		return errEngine
	}
	if s.ahead == nil || s.ahead.of != of {
		if err := s.connect(of); err != nil {
			return err
		}
	}
	if err := of.bring(ctx, keys, e); err != nil {
		if errors.Is(err, errWait) && len(s.ahead.open) > 0 { // it cannot go on at the store
			return errEngine
		}
		return err
	}
	note(s.ahead.open, name)
	if len(s.ahead.open) > 0 {
		of.dirty[s] = true
	} else {
		delete(of.dirty, s)
	}
	return s.answer(func(to *bufio.Writer) error {
		if err := s.ahead.SetDeadline(time.Now().Add(ownTimeout)); err != nil {
			return errors.Join(errEngine, err)
		}
		if _, err := s.ahead.Write(c.raw); err != nil {
			return errors.Join(errEngine, err)
		}
		if _, err := passReply(to, s.ahead.in); err != nil {
			return errors.Join(errEngine, err)
		}
		return nil
	})
}

// connect opens a connection to copies.
func (s *session) connect(of *copied) error {
	s.leave()
	conn, err := net.DialTimeout("unix", of.own.of.socket, ownTimeout)
	if err != nil {
		return errors.Join(errEngine, err)
	}
	a := &ahead{Conn: conn, of: of, in: bufio.NewReaderSize(conn, lineMost), open: map[string]bool{}}
	says := [][]string{{"SELECT", strconv.Itoa(of.own.number)}}
	if s.Protocol > 2 {
		says = append(says, []string{"HELLO", strconv.Itoa(s.Protocol)})
	}
	err = conn.SetDeadline(time.Now().Add(ownTimeout))
	for _, words := range says {
		if err == nil {
			_, err = conn.Write(appendCommand(nil, words...))
		}
		if err == nil {
			_, err = passReply(bufio.NewWriter(io.Discard), a.in)
		}
	}
	if err != nil {
		return errors.Join(errEngine, err, conn.Close())
	}
	s.ahead = a
	return nil
}

// leave closes the connection to copies.
func (s *session) leave() {
	if s.ahead != nil {
		_ = s.ahead.Close() // nothing of it is wanted
		s.ahead = nil
	}
}
