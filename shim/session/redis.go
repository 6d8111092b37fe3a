package session

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// inLimit bounds what a client has sent and nobody has read, in bytes. A longer command belongs to no start-up.
	inLimit = 4 << 10
	// startLimit bounds a Start of Redis, in bytes: what a driver says beyond it is forwarded like any other command.
	startLimit = 4 << 10
	// quiet is how long the front waits for a driver's next command. Drivers keep connections that say nothing after their
	// start-up, so that one that has paused is joined with its session.
	quiet = 2 * time.Second
	// refusals bounds how many commands are answered with an error: more than any driver sends before it gives up.
	refusals = 16
	// defaultUser is Redis' own, whom AUTH means without a user. A driver with nothing but a password names it in HELLO.
	defaultUser = "default"
	// handshake begins what a client sends that speaks TLS (RFC 8446, section 5.1), and no command.
	handshake = 0x16
	// codeOther begins errors that have no code of their own.
	codeOther = "ERR"
)

// Redis are sessions of one user. A session's Start is the commands that a driver begins with, as they are sent.
type Redis struct {
	// Name is the destination's in messages.
	Name string
	// User is Redis' default user if it is empty. Without user and password no log-in is needed.
	User, Password string
	DB             int
	// TLS has the server's name and roots; nil: none.
	TLS *tls.Config
}

// Open logs in, and says what the start has.
func (r Redis) Open(ctx context.Context, dial Dial, s Start) (*Session, error) {
	conn, err := dialTLS(ctx, dial, r.TLS)
	if err != nil {
		return nil, err
	}
	stop := until(ctx, conn.SetDeadline)
	answers, err := r.logIn(conn, s)
	if late := stop(); late != nil {
		err = late
	}
	if err != nil {
		_ = conn.Close() // the error says why
		return nil, fmt.Errorf("logging in: %w", err)
	}
	return &Session{Conn: conn, Start: s, answers: answers}, nil
}

func (r Redis) logIn(conn net.Conn, s Start) ([][]byte, error) {
	var own [][]string
	switch {
	case r.User != "":
		own = append(own, []string{"AUTH", r.User, r.Password})
	case r.Password != "":
		own = append(own, []string{"AUTH", r.Password})
	default:
		own = append(own, []string{"PING"}) // it tells whether the server lets the session in
	}
	if r.DB != 0 {
		own = append(own, []string{"SELECT", strconv.Itoa(r.DB)})
	}
	var out []byte
	for _, words := range own {
		out = AppendCommand(out, words...)
	}
	replies, err := exchange(conn, append(out, s...), len(own)+commands(s))
	for _, reply := range replies[:min(len(own), len(replies))] {
		if refused := refusal(reply); refused != nil {
			return nil, refused // and not the end of the connection, which follows
		}
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(replies[len(own):]), nil
}

// exchange sends commands together and returns their replies, with an error those that there are.
func exchange(conn net.Conn, out []byte, count int) (replies [][]byte, err error) {
	_, unsent := conn.Write(out) // a server that hangs up may have said why
	in := bufio.NewReaderSize(conn, lineLimit)
	for range count {
		reply, err := readReply(in, nil, 0)
		if err != nil {
			return replies, cmp.Or(unsent, err)
		}
		replies = append(replies, reply)
	}
	if in.Buffered() > 0 {
		return replies, errReply
	}
	return replies, unsent
}

// refusal is the error that a reply is, or nil.
func refusal(reply []byte) *Refusal {
	said, is := bytes.CutPrefix(reply, []byte("-"))
	if !is {
		return nil
	}
	code, message, _ := strings.Cut(string(bytes.TrimSpace(said)), " ")
	return &Refusal{Code: code, Message: message}
}

// commands counts those of a Start.
func commands(s Start) (n int) {
	for rest := []byte(s); len(rest) > 0; n++ {
		_, size, err := parseCommand(rest)
		if err != nil || size == 0 {
			break
		}
		rest = rest[size:]
	}
	return n
}

// Accept answers HELLO, AUTH, SELECT and what else drivers begin with, up to the first other command, which goes to the
// session. The session that is expected to suit (Sessions.Last) is taken at the driver's first command. A driver that
// begins otherwise, or does not say all that the session has been told, gets a fresh one. Answers that it has already
// got, such as the connection's number in HELLO's, are then those of the session before.
//
// AUTH by the destination's user, or without one, is answered with OK: the function needs no password, and the one that
// it gives goes nowhere. AUTH by another user goes to the server by a connection that is not logged in, and so does
// whatever a client says that speaks TLS.
func (r Redis) Accept(ctx context.Context, client net.Conn, from Sessions) (*Session, error) {
	f := front{redis: r, client: client, from: from}
	return f.accept(ctx)
}

// Begun is a session whose client is to be listened to.
type Begun struct {
	*Session
	// Unread is what the client has sent beyond its start-up. The server has not got it.
	Unread []byte
	// Version is that of Redis' protocol, and DB the number of the database, that the start-up asks for.
	Version, DB int
}

// Begin is Accept for who passes commands on by itself. A client that speaks for itself, by TLS or as another user, is refused.
func (r Redis) Begin(ctx context.Context, client net.Conn, from Sessions) (*Begun, error) {
	f := front{redis: r, client: client, from: from, keeps: true}
	s, err := f.accept(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	b := &Begun{Session: s, Unread: f.in, Version: 2, DB: r.DB}
	for rest := []byte(f.said); len(rest) > 0; {
		words, size, err := parseCommand(rest)
		if err != nil || size == 0 {
			break
		}
		rest = rest[size:]
		switch {
		case len(words) < 2:
		case words[0] == "HELLO":
			b.Version, _ = strconv.Atoi(words[1]) // what is no number the server has refused
		case words[0] == "SELECT":
			if n, err := strconv.Atoi(words[1]); err == nil { // else the server has refused it
				b.DB = n
			}
		}
	}
	return b, nil
}

func (f *front) accept(ctx context.Context) (*Session, error) {
	stop := until(ctx, f.client.SetReadDeadline)
	done, err := f.run(ctx)
	if !done {
		f.drop()
	}
	if err != nil {
		err = fmt.Errorf("destination %q: %w", f.redis.Name, err)
		f.refuse(ctx, err)
	}
	if late := stop(); late != nil {
		f.drop()
		err = cmp.Or(err, late)
	}
	if f.session != nil && f.client.SetReadDeadline(time.Time{}) != nil {
		f.drop() // the client has left
	}
	return f.session, err
}

// redisError is an error as a server replies it. A server's own keeps its code, which drivers know.
func redisError(err error) []byte {
	code := codeOther
	if refused := (*Refusal)(nil); errors.As(err, &refused) {
		code = refused.Code
	}
	return fmt.Appendf(nil, "-%s %s\r\n", code, strings.NewReplacer("\r", " ", "\n", " ").Replace(err.Error()))
}

// errOwnUser is why Begin refuses a client.
var errOwnUser = errors.New("a function that runs ahead uses it without TLS, as the user on the operator's list")

// front is the conversation with one driver up to the end of its start-up.
type front struct {
	redis   Redis
	client  net.Conn
	from    Sessions
	in      []byte // what the client has sent, from the first command on that is not answered
	session *Session
	said    Start // what the driver has asked for up to now
	answers int   // how many commands that is
	keeps   bool  // what is beyond the start-up stays here
}

// run returns when the start-up is over, and whether the session is the client's then.
func (f *front) run(ctx context.Context) (done bool, err error) {
	for {
		words, size, err := f.next(ctx)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return f.end(ctx)
		case err != nil:
			return false, nil // the client has left
		case f.session == nil && f.in[0] == handshake:
			return f.encrypt(ctx)
		}
		said, role := f.redis.role(words)
		switch {
		case role == startUp && len(f.said)+len(said) <= startLimit:
			err = f.ask(ctx, Start(said))
		case role == ownUser:
			err = f.tell([]byte("+OK\r\n"))
		case role == otherUser:
			return f.other(ctx, size)
		default:
			return f.end(ctx)
		}
		if left := (*gone)(nil); errors.As(err, &left) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		f.in = f.in[size:]
	}
}

// next waits for a whole command of the client. What is none, or too long for a start-up, has the size 0.
func (f *front) next(ctx context.Context) (words []string, size int, err error) {
	for {
		words, size, err = parseCommand(f.in)
		if size > 0 || err != nil || len(f.in) == inLimit {
			return words, size, nil
		}
		if err := f.client.SetReadDeadline(time.Now().Add(quiet)); err != nil {
			return nil, 0, err
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err // its end may have set the deadline before
		}
		b := make([]byte, inLimit-len(f.in))
		n, err := f.client.Read(b)
		if n == 0 && err != nil {
			return nil, 0, err
		}
		f.in = append(f.in, b[:n]...)
	}
}

// role is what a command is in a start-up.
type role int

const (
	notStartUp role = iota // it ends the start-up
	startUp
	ownUser   // AUTH, which is needless
	otherUser // AUTH or HELLO
)

// role returns what a command is, and how a Start has it: without credentials, and equal commands equal.
func (r Redis) role(words []string) (said []byte, is role) {
	if len(words) == 0 {
		return nil, notStartUp
	}
	words = slices.Clone(words)
	words[0] = strings.ToUpper(words[0])
	switch {
	case words[0] == "HELLO":
		kept := words[:min(2, len(words))]
		for rest := words[len(kept):]; len(rest) > 0; {
			option := strings.ToUpper(rest[0])
			switch {
			case option == "AUTH" && len(rest) > 2:
				if !r.own(rest[1]) {
					return nil, otherUser
				}
				rest = rest[3:]
			case option == "SETNAME" && len(rest) > 1:
				kept, rest = append(kept, option, rest[1]), rest[2:]
			default:
				kept, rest = append(kept, option), rest[1:] // the server says that it is wrong
			}
		}
		return AppendCommand(nil, kept...), startUp
	case words[0] == "AUTH" && (len(words) == 2 || len(words) == 3 && r.own(words[1])):
		return nil, ownUser
	case words[0] == "AUTH" && len(words) == 3:
		return nil, otherUser
	case words[0] == "SELECT" && len(words) == 2, words[0] == "READONLY":
		return AppendCommand(nil, words...), startUp
	case words[0] == "CLIENT" && len(words) > 1:
		words[1] = strings.ToUpper(words[1])
		// Not ID: a driver that is given a session's number has to get that session.
		if slices.Contains([]string{"SETINFO", "SETNAME", "MAINT_NOTIFICATIONS"}, words[1]) {
			return AppendCommand(nil, words...), startUp
		}
	}
	return nil, notStartUp
}

func (r Redis) own(user string) bool {
	return user == cmp.Or(r.User, defaultUser) || user == defaultUser
}

// gone is the error of writing to a client that has left.
type gone struct{ error }

func (f *front) tell(reply []byte) error {
	if err := answer(f.client, reply); err != nil {
		return &gone{err}
	}
	return nil
}

// drop closes the session, which nobody uses.
func (f *front) drop() {
	if f.session != nil {
		_ = f.session.Conn.Close() // it is not needed
		f.session = nil
	}
}

// refuse answers with an error until the client leaves. Drivers do not show what HELLO is refused with: it may be
// unknown to the server, and they go on without it.
func (f *front) refuse(ctx context.Context, err error) {
	for range refusals {
		_, size, _ := parseCommand(f.in)
		if f.tell(redisError(err)) != nil || size == 0 {
			return
		}
		f.in = f.in[size:]
		if _, size, _ = f.next(ctx); size == 0 {
			return
		}
	}
}

// ask answers a command of the start-up: by what the session has said to it, or by asking the session now.
func (f *front) ask(ctx context.Context, command Start) error {
	before := f.said
	f.said += command
	if f.session == nil {
		expected := f.from.Last()
		if expected != "" && !strings.HasPrefix(string(expected), string(f.said)) {
			expected = f.said
		}
		if err := f.take(ctx, expected); err != nil {
			return err
		}
	}
	s := f.session
	if s.Start == before {
		stop := until(ctx, s.Conn.SetDeadline)
		replies, err := exchange(s.Conn, []byte(command), 1)
		if late := stop(); late != nil {
			err = late
		}
		if err != nil {
			return fmt.Errorf("asking the server: %w", err)
		}
		s.Start, s.answers = f.said, append(s.answers, replies...)
	}
	if !strings.HasPrefix(string(s.Start), string(f.said)) {
		if err := f.take(ctx, f.said); err != nil {
			return err
		}
	}
	f.answers++
	return f.tell(f.session.answers[f.answers-1])
}

// take makes the session one with that start.
func (f *front) take(ctx context.Context, s Start) (err error) {
	f.drop() // it has been told what this driver has not said
	f.session, err = f.from.Take(ctx, s)
	return err
}

// end sends the session what is no start-up any more. It is the client's from now on.
func (f *front) end(ctx context.Context) (done bool, err error) {
	if f.session == nil || f.session.Start != f.said {
		if err := f.take(ctx, f.said); err != nil {
			return false, err
		}
	}
	return f.handOver(ctx)
}

func (f *front) handOver(ctx context.Context) (done bool, err error) {
	if f.keeps {
		f.session.answers = nil
		return true, nil
	}
	stop := until(ctx, f.session.Conn.SetDeadline)
	_, err = f.session.Conn.Write(f.in)
	if late := stop(); late != nil {
		err = late
	}
	if err != nil {
		return false, fmt.Errorf("asking the server: %w", err)
	}
	f.session.answers = nil
	return true, nil
}

// encrypt has a client that speaks TLS do so with the server.
func (f *front) encrypt(ctx context.Context) (done bool, err error) {
	if f.keeps {
		return false, errOwnUser
	}
	if err := f.take(ctx, Bare); err != nil {
		return false, err
	}
	return f.handOver(ctx)
}

// other sends the log-in of another user by a connection of its own, which is told what the driver has said before, as
// soon as it is logged in. size is that of the log-in.
func (f *front) other(ctx context.Context, size int) (done bool, err error) {
	if f.keeps {
		return false, errOwnUser
	}
	if err := f.take(ctx, Bare); err != nil {
		return false, err
	}
	conn, err := dialTLS(ctx, func(context.Context) (net.Conn, error) { return f.session.Conn, nil }, f.redis.TLS)
	if err != nil {
		return false, err
	}
	f.session.Conn = conn
	if f.said != "" {
		stop := until(ctx, conn.SetDeadline)
		replies, err := exchange(conn, append(slices.Clone(f.in[:size]), f.said...), 1+f.answers)
		if late := stop(); late != nil {
			err = late
		}
		if err == nil {
			err = f.tell(replies[0])
		}
		if err != nil {
			return false, fmt.Errorf("asking the server: %w", err)
		}
		f.in = f.in[size:]
	}
	return f.handOver(ctx)
}
