package databuffer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/session"
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
var harmless = map[string]bool{"PING": true, "ECHO": true, "COMMAND": true, "CLIENT GETNAME": true, "CLIENT ID": true}

// ofClients are commands that clients send by themselves: about the connection, and to see whether the server is there.
var ofClients = map[string]bool{"PING": true, "ECHO": true, "COMMAND": true, "CLIENT": true, "HELLO": true, "AUTH": true, "SELECT": true, "QUIT": true,
	"RESET": true, "INFO": true}

// unlike begin errors of the engine's that the store would not have answered with.
var unlike = []string{"-OOM", "-MISCONF", "-NOPERM", "-NOAUTH", "-LOADING", "-BUSY", "-READONLY"}

// opening are commands after which replies are no more one for each command, or another user or database is in force.
var opening = map[string]bool{"SUBSCRIBE": true, "PSUBSCRIBE": true, "SSUBSCRIBE": true, "UNSUBSCRIBE": true, "PUNSUBSCRIBE": true,
	"SUNSUBSCRIBE": true, "MONITOR": true, "SYNC": true, "PSYNC": true, "RESET": true, "HELLO": true, "AUTH": true, "SELECT": true,
	"CLIENT REPLY": true}

// passing is a session at work. It belongs to the goroutine of run, but for what passes replies on.
type passing struct {
	Session
	buffer *Buffer
	in     *bufio.Reader // of the program
	out    *bufio.Writer // to the store

	writing sync.Mutex    // held while something is said to the program, which may not read
	to      *bufio.Writer // to the program

	mu      sync.Mutex
	pending int        // replies that the store owes
	settled *sync.Cond // pending is 0, or broken
	broken  error      // why no more replies come

	ahead *ahead          // the connection to copies; nil: none is open
	open  map[string]bool // MULTI and WATCH, at the store
	plain bool            // all commands are the store's: an opening one was sent
}

// unreadMost is how long a program may not read what it has asked of copies.
const unreadMost = time.Second

// errEngine is why an attempt cannot go on: what it works on is lost.
var errEngine = errors.New("the attempt's copies are lost")

// ahead is a connection to the copies of an attempt.
type ahead struct {
	net.Conn
	of   *copied
	in   *bufio.Reader
	open map[string]bool // MULTI and WATCH
	// queued is how many commands MULTI has.
	queued int
}

// Pass passes a session's commands and replies on, until one of the two ends or ctx does.
func (b *Buffer) Pass(ctx context.Context, of Session) {
	ctx, cancel := context.WithCancel(ctx)
	s := &passing{Session: of, buffer: b, in: bufio.NewReaderSize(&prefixed{of.Unread, of.Client}, lineMost), out: bufio.NewWriterSize(of.Server, lineMost),
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
func (s *passing) replies() {
	in := bufio.NewReaderSize(s.Server, lineMost)
	var err error
	for err == nil {
		if _, err = in.Peek(1); err != nil {
			break
		}
		var pushed bool
		s.writing.Lock()
		if pushed, err = passReply(s.to, in); err == nil && in.Buffered() == 0 {
			err = s.to.Flush()
		}
		s.writing.Unlock()
		s.mu.Lock()
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
func (s *passing) run(ctx context.Context) error {
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
func (s *passing) command(ctx context.Context, c *command) error {
	if !ofClients[c.name()] {
		s.buffer.config.Works(s.Instance)
	}
	a := s.buffer.config.Current(s.Instance)
	if a == nil || a.InTurn() {
		s.buffer.config.Metrics.inTurn.Inc()
		s.leave()
		return s.ask(c)
	}
	if (s.ahead == nil || len(s.ahead.open) == 0) && (harmless[c.name()] || harmless[c.name()+" "+c.word(1)]) {
		return s.ask(c)
	}
	for _, writer := range a.Stalls() {
		if err := s.turn(ctx, writer.Over()); err != nil {
			return s.refuse(c, err.Error())
		}
	}
	err := s.askCopies(ctx, a, c)
	switch {
	case err == nil:
		s.buffer.config.Metrics.copied.Inc()
		return nil
	case errors.Is(err, errSettling):
		select {
		case <-a.Turn():
		case <-a.Squashed():
		case <-ctx.Done():
			return ctx.Err()
		}
	case errors.Is(err, errWait):
		s.buffer.config.Metrics.waited.Inc()
		if err := s.turn(ctx, nil); err != nil {
			return s.refuse(c, err.Error())
		}
	case errors.Is(err, errEngine):
		a.Squash()
	case !errors.Is(err, errTurn):
		return err
	}
	if !a.InTurn() { // the instance may have another request meanwhile
		return s.refuse(c, attempt.ErrSquashed.Error())
	}
	s.leave()
	return s.ask(c)
}

// turn waits until what the instance does may have effects, or until something else. A program that does not wait for that has left.
func (s *passing) turn(ctx context.Context, until <-chan struct{}) error {
	if err := s.out.Flush(); err != nil { // of what came before
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer serve.OnLeft(serve.WithConnection(ctx, s.Client), cancel)()
	return s.buffer.config.Turn(ctx, s.Instance, until)
}

// ask sends a command to the store.
func (s *passing) ask(c *command) error {
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
func (s *passing) refuse(c *command, why string) error {
	if err := c.passRest(bufio.NewWriter(io.Discard), s.in); err != nil {
		return err
	}
	return s.say(failed(why))
}

// settle waits until the store owes the program no more replies.
func (s *passing) settle() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending > 0 && s.broken == nil && !s.plain {
		s.settled.Wait()
	}
	return s.broken
}

// say says something to the program, when the store owes it no more replies.
func (s *passing) say(what []byte) error {
	if err := s.settle(); err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.to.Write(what); err != nil {
		return err
	}
	return s.to.Flush()
}

// askCopies has a command work on copies.
func (s *passing) askCopies(ctx context.Context, a *attempt.Attempt, c *command) error {
	if a.IsSquashed() {
		return errEngine
	}
	if s.Store == nil || s.plain || len(s.open) > 0 || !c.whole() {
		return errWait
	}
	of, err := s.buffer.copyOf(a, s.Store)
	if err != nil {
		return err
	}
	var writes bool
	var keys []string
	switch c.name() {
	case "MULTI", "EXEC", "DISCARD", "UNWATCH":
	case "WATCH":
		for _, k := range c.words[1:] {
			keys = append(keys, string(k))
		}
	default:
		e, used, ok := s.Store.table(ctx, of.own.of).uses(c)
		if keys, writes = used, e.writes; !ok {
			return s.waits(of)
		}
	}
	if err := s.settle(); err != nil { // nobody who wants the copies is to wait for the store
		return err
	}
	reply, err := s.copies(ctx, a, of, c, keys, writes)
	if err != nil {
		return err
	}
	// A client may write all that it has to say before it reads. The store would keep the replies meanwhile.
	if err := s.Client.SetWriteDeadline(time.Now().Add(unreadMost)); err != nil {
		return err
	}
	if err := s.say(reply); err != nil {
		a.Squash()
		return err
	}
	return s.Client.SetWriteDeadline(time.Time{})
}

// waits is why a command waits for its turn. A transaction cannot go on at the store.
func (s *passing) waits(of *copied) error {
	if s.ahead != nil && s.ahead.of == of && len(s.ahead.open) > 0 {
		return errEngine
	}
	return errWait
}

// copies returns what the engine replies.
func (s *passing) copies(ctx context.Context, a *attempt.Attempt, of *copied, c *command, keys []string, writes bool) (reply []byte, err error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	switch {
	case of.over && a.IsSquashed():
		return nil, errEngine
	case of.over:
		return nil, errSettling
	}
	if s.ahead == nil || s.ahead.of != of {
		if err := s.connect(of); err != nil {
			return nil, err
		}
	}
	sets := writes && blind(c) && len(s.ahead.open) == 0
	if !sets {
		if err := of.bring(ctx, keys, writes); err != nil {
			if errors.Is(err, errWait) {
				return nil, s.waits(of)
			}
			return nil, err
		}
	}
	if s.ahead.open["MULTI"] {
		if s.ahead.queued++; s.ahead.queued > queuedMost {
			return nil, errEngine
		}
	}
	if note(s.ahead.open, c.name()); !s.ahead.open["MULTI"] {
		s.ahead.queued = 0
	}
	if len(s.ahead.open) > 0 {
		of.dirty[s] = true
	} else {
		delete(of.dirty, s)
	}
	if reply, err = s.ahead.ask(c.raw); err != nil {
		return nil, errors.Join(errEngine, err)
	}
	if slices.ContainsFunc(unlike, func(e string) bool { return strings.HasPrefix(string(reply[:min(len(e), len(reply))]), e) }) {
		return nil, errEngine
	}
	if sets && reply[0] != '-' {
		of.set(keys)
	}
	return reply, nil
}

// ask returns a reply.
func (a *ahead) ask(raw []byte) ([]byte, error) {
	if err := a.SetDeadline(time.Now().Add(ownTimeout)); err != nil {
		return nil, err
	}
	if _, err := a.Write(raw); err != nil {
		return nil, err
	}
	var reply bounded
	to := bufio.NewWriter(&reply)
	if _, err := passReply(to, a.in); err != nil {
		return nil, err
	}
	err := to.Flush()
	return reply.Bytes(), err
}

// bounded holds a reply.
type bounded struct{ bytes.Buffer }

// replyMost bounds what the engine replies to one command, in bytes: all that an attempt may have copies of, several times.
const replyMost = 8 << 20

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > replyMost {
		return 0, errors.New("the reply is too large")
	}
	return b.Buffer.Write(p)
}

// connect opens a connection to copies.
func (s *passing) connect(of *copied) error {
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
	for _, words := range says {
		reply, err := a.ask(session.AppendCommand(nil, words...))
		if err == nil && reply[0] == '-' {
			err = errors.New(string(reply))
		}
		if err != nil {
			return errors.Join(errEngine, err, conn.Close())
		}
	}
	s.ahead = a
	return nil
}

// leave closes the connection to copies.
func (s *passing) leave() {
	if s.ahead != nil {
		_ = s.ahead.Close() // nothing of it is wanted
		s.ahead = nil
	}
}
