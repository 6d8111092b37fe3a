package redis

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

// line is one connection to the server. One goroutine at a time uses it.
type line struct {
	conn net.Conn
	in   *bufio.Reader
	user secret.Secret // whose line it is; empty without credentials
	// greeting is what the server is told before the first command, greetings how many of
	// its replies have not been read.
	greeting  []byte
	greetings int
	broken    bool        // nothing more can be said by it
	unused    *time.Timer // closes it when nobody has used it for long
}

// newLine makes a line of a connection. It greets together with the first command, and not
// by HELLO, which would be a round trip before it.
func newLine(conn net.Conn, database int, user secret.Secret) *line {
	l := &line{conn: conn, in: bufio.NewReaderSize(conn, headerLimit), user: user}
	username, password := user.Get(keyUsername), user.Get(keyPassword)
	greet := func(command ...string) {
		l.greeting = encode(l.greeting, command...)
		l.greetings++
	}
	switch {
	case username != "":
		greet("AUTH", username, password)
	case password != "":
		greet("AUTH", password)
	}
	if database != 0 {
		greet("SELECT", strconv.Itoa(database))
	}
	return l
}

// send sends commands together and returns their replies, which may be refusals. An error
// is one of the connection, or the server's that does not take it. It ends with ctx.
func (l *line) send(ctx context.Context, commands ...[]string) ([]reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	replies, err := l.exchange(commands)
	if !stop() {
		l.broken = true
	}
	return replies, err
}

func (l *line) exchange(commands [][]string) (replies []reply, err error) {
	if err := l.write(commands...); err != nil {
		return nil, err
	}
	if err := l.greeted(); err != nil {
		return nil, err
	}
	for range commands {
		r, err := readReply(l.in, head)
		if err != nil {
			l.broken = true
			// What a server says before it hangs up is why.
			if n := len(replies); n > 0 && replies[n-1].err != nil {
				return nil, replies[n-1].err
			}
			return nil, err
		}
		replies = append(replies, r)
	}
	return replies, nil
}

// write sends commands, of which somebody reads the replies when the line has greeted.
func (l *line) write(commands ...[]string) error {
	out := l.greeting
	l.greeting = nil
	for _, c := range commands {
		out = encode(out, c...)
	}
	_, err := l.conn.Write(out)
	l.broken = l.broken || err != nil
	return err
}

// greeted reads what the server says to the greeting.
func (l *line) greeted() error {
	for ; l.greetings > 0; l.greetings-- {
		r, err := readReply(l.in, 0)
		if err = cmp.Or(err, r.err); err != nil {
			l.broken = true
			return err
		}
	}
	return nil
}

func (l *line) close() { _ = l.conn.Close() }

// lines are the connections to a server. Its methods may be called at the same time.
type lines struct {
	config Config
	dialer func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	idle   []*line
}

func newLines(cfg Config) *lines {
	host, _, _ := net.SplitHostPort(cfg.Address) // which New has checked
	plain := ranged.Dialer(address.Rule{Store: cfg.Store, Host: host})
	dial := plain.DialContext
	if cfg.TLS {
		conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.roots}
		dial = (&tls.Dialer{NetDialer: plain, Config: conf}).DialContext
	}
	return &lines{config: cfg, dialer: func(ctx context.Context) (net.Conn, error) {
		return dial(ctx, "tcp", cfg.Address)
	}}
}

// begin begins to use a line, which is the caller's until he puts it back. What is sent
// first by a line that was kept is a question, which is asked again by another line if the
// server has closed that one meanwhile. The secret is read each time: a server asks for it once
// per connection, but a changed one counts at once.
func (p *lines) begin(ctx context.Context, use func(*line) error) (*line, error) {
	user, err := p.user(ctx)
	if err != nil {
		return nil, err
	}
	for {
		// A kept line may answer before its being closed has come through.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := p.take(user)
		kept := l != nil
		if !kept {
			if l, err = p.dial(ctx, user); err != nil {
				return nil, err
			}
		}
		err := use(l)
		if err == nil {
			return l, nil
		}
		l.close()
		if kept && l.broken && ctx.Err() == nil {
			continue
		}
		return nil, err
	}
}

// ask sends commands by any line, which is the caller's until he puts it back.
func (p *lines) ask(ctx context.Context, commands ...[]string) (l *line, replies []reply, err error) {
	l, err = p.begin(ctx, func(l *line) (err error) {
		replies, err = l.send(ctx, commands...)
		return err
	})
	return l, replies, err
}

// take returns a kept line of the user's. It closes those of before the secret was changed.
func (p *lines) take(user secret.Secret) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		l := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		switch {
		case !l.unused.Stop():
		case !same(l.user, user):
			l.close()
		default:
			return l
		}
	}
	return nil
}

func same(a, b secret.Secret) bool {
	return a.Get(keyUsername) == b.Get(keyUsername) && a.Get(keyPassword) == b.Get(keyPassword)
}

// put keeps a line for the next who needs one.
func (p *lines) put(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.broken || l.in.Buffered() > 0 || p.closed || len(p.idle) == ranged.Slots {
		l.close()
		return
	}
	// One that take finds too late closes itself.
	l.unused = time.AfterFunc(ranged.Idle, l.close)
	p.idle = append(p.idle, l)
}

// Close closes all lines that nobody uses, and from now on those that are put back.
func (p *lines) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.idle {
		if l.unused.Stop() {
			l.close()
		}
	}
	p.idle = nil
}

// user reads the secret, which is empty if the server needs none.
func (p *lines) user(ctx context.Context) (secret.Secret, error) {
	if p.config.Credentials == nil {
		return secret.Secret{}, nil
	}
	s, err := p.config.Credentials(ctx)
	if err == nil && s.Get(keyPassword) == "" {
		err = errPassword
	}
	if err != nil {
		return secret.Secret{}, source.Because(source.Forbidden(p.config.Store, "its credentials cannot be read"), err)
	}
	return s, nil
}

func (p *lines) dial(ctx context.Context, user secret.Secret) (*line, error) {
	conn, err := p.dialer(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return newLine(conn, p.config.Database, user), nil
}
