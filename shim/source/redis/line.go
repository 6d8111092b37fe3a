package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/source"
	"github.com/headstart-mesh/headstart/shim/source/ranged"
)

// errGone is a line whose connection is no more.
var errGone = errors.New("the connection has been closed")

// line is one connection to the server, and never another one: what WATCH promises ends
// with its connection. One goroutine at a time uses it.
type line struct {
	client *redis.Client
	conn   net.Conn
	broken bool
	unused *time.Timer // closes it when nobody has used it for long
}

// newLine makes a line of a connection.
func newLine(conn net.Conn, cfg Config, username, password string) *line {
	var once sync.Once
	return &line{conn: conn, client: redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			err := errGone
			once.Do(func() { err = nil })
			return conn, err
		},
		// The client tries failed dials again in the background when there have been as many
		// as it may have connections: there will be no second one.
		PoolSize: 2,
		// What is tried again is known here, and time is watched here: -2 sets no deadlines.
		MaxRetries: -1, ReadTimeout: -2, WriteTimeout: -2, ConnMaxIdleTime: -1,
		Protocol: 2, DisableIdentity: true,
		Username: username, Password: password, DB: cfg.Database,
	})}
}

// send sends commands together and returns their replies, which may be errors of the
// server. An error is one of the connection, or the server's that does not take it. It ends
// with ctx.
func (l *line) send(ctx context.Context, commands ...[]any) ([]*redis.Cmd, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	pipe := l.client.Pipeline()
	replies := make([]*redis.Cmd, len(commands))
	for i, c := range commands {
		replies[i] = pipe.Do(ctx, c...)
	}
	_, err := pipe.Exec(ctx)
	l.broken = !stop()
	if err == nil {
		return replies, nil
	}
	answered := false
	for _, r := range replies {
		if err := r.Err(); err != nil && !isReply(err) {
			l.broken = true
			return nil, err
		}
		answered = answered || r.Err() != nil
	}
	// No command has failed, so what has is the greeting: the password, or the database.
	if !answered {
		l.broken = true
		return nil, err
	}
	return replies, nil
}

// isReply reports whether an error is the server's reply; redis.Nil is one.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func (l *line) close() {
	_ = l.client.Close()
	// The client may not have had it yet.
	_ = l.conn.Close()
}

// lines are the connections to a server. Its methods may be called at the same time.
type lines struct {
	config Config
	dialer func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	idle   []*line
}

func newLines(cfg Config) *lines {
	return &lines{config: cfg, dialer: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: ranged.Stall}).DialContext(ctx, "tcp", cfg.Address)
	}}
}

// do sends commands by any line.
func (p *lines) do(ctx context.Context, commands ...[]any) ([]*redis.Cmd, error) {
	l, replies, err := p.begin(ctx, commands...)
	if err != nil {
		return nil, err
	}
	p.put(l)
	return replies, nil
}

// begin sends commands by any line, which is the caller's until he puts it back.
func (p *lines) begin(ctx context.Context, commands ...[]any) (*line, []*redis.Cmd, error) {
	for {
		l := p.take()
		kept := l != nil
		if !kept {
			var err error
			if l, err = p.dial(ctx); err != nil {
				return nil, nil, err
			}
		}
		replies, err := l.send(ctx, commands...)
		if err == nil {
			return l, replies, nil
		}
		l.close()
		// The server has closed it meanwhile, and the commands were not sent.
		if kept && errors.Is(err, errGone) && ctx.Err() == nil {
			continue
		}
		return nil, nil, err
	}
}

func (p *lines) take() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		l := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if l.unused.Stop() {
			return l
		}
	}
	return nil
}

// put keeps a line for the next who needs one.
func (p *lines) put(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.broken || p.closed || len(p.idle) == ranged.Slots {
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

func (p *lines) dial(ctx context.Context) (*line, error) {
	var username, password string
	if p.config.Credentials != nil {
		s, err := p.config.Credentials(ctx)
		if err == nil && s.Get(keyPassword) == "" {
			err = errPassword
		}
		if err != nil {
			return nil, source.Because(source.Forbidden(p.config.Store, "its credentials cannot be read"), err)
		}
		username, password = s.Get(keyUsername), s.Get(keyPassword)
	}
	conn, err := p.dialer(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if !p.config.TLS {
		return newLine(conn, p.config, username, password), nil
	}
	host, _, err := net.SplitHostPort(p.config.Address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	secured := tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, RootCAs: p.config.roots})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			return nil, source.Because(source.Unavailable(p.config.Store, "its certificate is not trusted"), err)
		}
		return nil, fmt.Errorf("securing the connection: %w", err)
	}
	return newLine(secured, p.config, username, password), nil
}
