// Package session logs sessions in to servers before a program needs them, and answers the start-up of the program's
// driver from what the server said to that session. PostgreSQL's log-in is pgx's. Redis' is written here: a client
// library keeps its connection to itself, and the few replies that a log-in has are read in a page of code.
package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// answerTimeout bounds how long an answer of a few hundred bytes waits for the client to have room for it.
const answerTimeout = 5 * time.Second

// saidLimit bounds what a message repeats of a server's words, in bytes.
const saidLimit = 512

// Dial opens a stream to the destination's server, without TLS.
type Dial func(ctx context.Context) (net.Conn, error)

// Start is what a driver asks for when it starts up, in a canonical form: equal starts can be answered by the same
// session. It holds any bytes. The empty one asks for nothing, and is used before any driver has said anything.
type Start string

// Bare is the Start of a stream to the server as it is, without TLS and log-in: the client speaks for itself.
const Bare Start = "\x00bare"

// Session is a stream that is logged in and idle. It is used once.
type Session struct {
	// Conn is a *tls.Conn or what Dial returned. Nothing that the server has sent is buffered outside of it.
	Conn net.Conn
	// Start is what was asked for, by Open or by the driver that Accept has answered.
	Start Start

	answers [][]byte // what the server said to the start
}

// Sessions is where Accept gets what it needs.
type Sessions interface {
	// Last is the Start of the session that Accept returned last for this function: what its next driver is expected to
	// ask for, which Redis' drivers say little by little.
	Last() Start
	// Take returns a session that was opened with the start, or a bare stream: one that waits, or a fresh one.
	Take(ctx context.Context, s Start) (*Session, error)
	// Dial opens a stream to the server, for a request that is no session's. None that waits is used for it.
	Dial(ctx context.Context) (net.Conn, error)
}

// Protocol is what is spoken with a destination's server.
type Protocol interface {
	// Open opens a session. Its context bounds the log-in.
	Open(ctx context.Context, dial Dial, s Start) (*Session, error)
	// Accept answers the start-up of the driver on a program's connection, within its context. It returns the session that
	// the caller is to join with client from now on. nil without error: the client is done with, as it has left or only
	// wanted something cancelled. The client has been told of an error. The caller closes client.
	Accept(ctx context.Context, client net.Conn, from Sessions) (*Session, error)
}

// Refusal is the answer of a server that does not take the log-in, or not with this start.
type Refusal struct {
	// Code is the SQLSTATE, or the first word of Redis' error.
	Code    string
	Message string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the server refuses: %.*s (%.*s)", saidLimit, r.Message, saidLimit, r.Code)
}

// Denied reports whether only the operator or the server's can change that: it is asked again in vain.
func (r *Refusal) Denied() bool {
	switch r.Code {
	case "3D000", "42501", "WRONGPASS", "NOAUTH", "NOPERM": // no such database, no privilege
		return true
	}
	return strings.HasPrefix(r.Code, "28") // invalid authorization
}

// Full reports whether the server has too many clients.
func (r *Refusal) Full() bool {
	return r.Code == "53300" || strings.HasPrefix(r.Message, "max number of clients")
}

// Raw is a stream without a log-in: the kinds tcp and tls.
type Raw struct {
	// TLS is spoken with the server; nil: none.
	TLS *tls.Config
}

// Open opens the stream. The start means nothing to it.
func (r Raw) Open(ctx context.Context, dial Dial, s Start) (*Session, error) {
	conn, err := dialTLS(ctx, dial, r.TLS)
	if err != nil {
		return nil, err
	}
	return &Session{Conn: conn, Start: s}, nil
}

// Accept takes a stream at once.
func (r Raw) Accept(ctx context.Context, _ net.Conn, from Sessions) (*Session, error) {
	return from.Take(ctx, "")
}

func dialTLS(ctx context.Context, dial Dial, config *tls.Config) (net.Conn, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if config == nil {
		return conn, nil
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says why
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secured, nil
}

// until has a connection's deadline pass when ctx ends. stop returns why it has ended; after nil the connection can be
// used as before.
func until(ctx context.Context, deadline func(time.Time) error) (stop func() error) {
	// A deadline that cannot be set is that of a closed connection, which blocks nobody.
	stopped := context.AfterFunc(ctx, func() { _ = deadline(time.Unix(1, 0)) })
	return func() error {
		if stopped() {
			return nil
		}
		return context.Cause(ctx)
	}
}

// answer writes to a client, which may be one that does not read.
func answer(client net.Conn, b []byte) error {
	if err := client.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := client.Write(b)
	return errors.Join(err, client.SetWriteDeadline(time.Time{}))
}
