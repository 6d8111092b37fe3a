package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// startupLimit is PostgreSQL's own for a start-up packet (MAX_STARTUP_PACKET_LENGTH), startupLeast the length of one
	// that holds a code alone.
	startupLimit = 10_000
	startupLeast = 8
	// requests is how many packets a driver may send until its session begins or something is cancelled. It asks for TLS
	// once, and for GSSAPI once.
	requests = 4
	// messageLimit bounds the messages of a server during the log-in, in bytes. The longest ones are errors.
	messageLimit = 64 << 10
	// idle is the transaction status of a session outside a transaction.
	idle = 'I'
	// optionPrefix begins the start-up parameters that are options of the protocol.
	optionPrefix = "_pq_."
)

// The parameters of a start-up packet that choose more than a session's settings.
const (
	parameterUser        = "user"
	parameterDatabase    = "database"
	parameterReplication = "replication"
)

// The SQLSTATEs of errors that have none by the server.
const (
	stateProtocol    = "08P01" // protocol_violation
	stateConnection  = "08006" // connection_failure
	stateUnsupported = "0A000" // feature_not_supported
	stateUser        = "28000" // invalid_authorization_specification
	stateDatabase    = "3D000" // invalid_catalog_name
)

// ErrEncryption is Accept's for a client that has asked for TLS and has left at the no. A driver that prefers TLS may
// do so as well, and connect again without. One that insists never starts up.
var ErrEncryption = errors.New("the client leaves when it is refused TLS")

// Postgres are sessions of one user in one database. A session's Start is the start-up parameters.
//
// Drivers that insist on TLS or on channel binding cannot be answered from such a session. They say so themselves.
type Postgres struct {
	// Name is the destination's in messages.
	Name string
	// Database is the user's name if it is empty, as for the server.
	User, Password, Database string
	// TLS is asked for by SSLRequest and has the server's name and roots; nil: none.
	TLS *tls.Config
	// Encrypted has clients that ask for TLS speak with the server itself, by a stream that is not logged in.
	Encrypted bool
}

// Open logs in.
func (p Postgres) Open(ctx context.Context, dial Dial, s Start) (*Session, error) {
	config, err := p.config(dial)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams = parameters(s)
	c, err := pgconn.ConnectConfig(ctx, config)
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		return nil, &Refusal{Code: refused.Code, Message: refused.Message}
	}
	if err != nil {
		return nil, err // it says what failed, and of whom
	}
	if err := c.SyncConn(ctx); err != nil {
		_ = c.Conn().Close() // the error before says why
		return nil, err
	}
	h, err := c.Hijack()
	if err != nil {
		_ = c.Conn().Close() // likewise
		return nil, fmt.Errorf("taking over the session: %w", err)
	}
	said, err := greeting(h)
	if err != nil {
		_ = h.Conn.Close() // likewise
		return nil, err
	}
	return &Session{Conn: h.Conn, Start: s, answers: [][]byte{said}}, nil
}

// config is pgconn's for this destination. The environment, which pgconn reads as well, chooses nothing of it.
func (p Postgres) config(dial Dial) (*pgconn.Config, error) {
	c, err := pgconn.ParseConfig("host=destination port=5432 user=destination password=destination sslmode=disable")
	if err != nil {
		return nil, fmt.Errorf("configuring a session: %w", err)
	}
	c.Host, c.User, c.Password, c.Database = p.Name, p.User, p.Password, p.Database
	c.TLSConfig, c.Fallbacks = p.TLS, nil
	c.MaxProtocolMessageBodyLen = messageLimit
	c.ValidateConnect, c.AfterConnect = nil, nil
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return c, nil
}

// greeting is what a server says to a start-up packet that it takes.
func greeting(h *pgconn.HijackedConn) ([]byte, error) {
	if h.TxStatus != idle {
		return nil, fmt.Errorf("the session is not idle (%q)", h.TxStatus)
	}
	messages := []pgproto3.BackendMessage{&pgproto3.AuthenticationOk{}}
	for _, name := range slices.Sorted(maps.Keys(h.ParameterStatuses)) {
		messages = append(messages, &pgproto3.ParameterStatus{Name: name, Value: h.ParameterStatuses[name]})
	}
	return encoded(append(messages,
		&pgproto3.BackendKeyData{ProcessID: h.PID, SecretKey: h.SecretKey},
		&pgproto3.ReadyForQuery{TxStatus: idle})...)
}

// Accept answers a start-up packet, and forwards a cancel request. Requests for TLS and GSSAPI are answered with no:
// the stream to the program does not leave the node.
func (p Postgres) Accept(ctx context.Context, client net.Conn, from Sessions) (*Session, error) {
	stop := until(ctx, client.SetReadDeadline)
	message, err := p.receive(client)
	if late := stop(); late != nil {
		return nil, late
	}
	var bad *malformed
	switch {
	case errors.As(err, &bad):
		return nil, p.refuse(client, stateProtocol, err)
	case errors.Is(err, ErrEncryption):
		return nil, fmt.Errorf("destination %q: %w", p.Name, err)
	case err != nil:
		return nil, nil // the client has left
	}
	switch m := message.(type) {
	case *pgproto3.CancelRequest:
		return nil, p.cancel(ctx, from, m)
	case *pgproto3.StartupMessage:
		return p.start(ctx, client, from, m)
	case *pgproto3.SSLRequest:
		if p.Encrypted {
			return p.encrypt(ctx, from, m)
		}
	}
	return nil, p.refuse(client, stateProtocol, &malformed{"too many requests for encryption"})
}

func (p Postgres) start(
	ctx context.Context, client net.Conn, from Sessions, m *pgproto3.StartupMessage,
) (*Session, error) {
	start, options, state, err := p.read(m)
	if err != nil {
		return nil, p.refuse(client, state, err)
	}
	s, err := from.Take(ctx, start)
	if err != nil {
		state := stateConnection
		if refused := (*Refusal)(nil); errors.As(err, &refused) {
			state = refused.Code
		}
		return nil, p.refuse(client, state, err)
	}
	said := s.answers[0]
	if m.ProtocolVersion != pgproto3.ProtocolVersion30 || len(options) > 0 {
		// The session speaks 3.0 without options, as a server does that knows nothing newer.
		negotiated, err := encoded(&pgproto3.NegotiateProtocolVersion{UnrecognizedOptions: options})
		if err != nil {
			_ = s.Conn.Close() // the error says why
			return nil, err
		}
		said = append(negotiated, said...)
	}
	if answer(client, said) != nil {
		_ = s.Conn.Close() // nobody uses it
		return nil, nil
	}
	return s, nil
}

// read returns what a start-up packet asks for, and the options of the protocol that it names. An error is the
// client's, with its SQLSTATE.
func (p Postgres) read(m *pgproto3.StartupMessage) (s Start, options []string, state string, err error) {
	database := cmp.Or(p.Database, p.User)
	var start strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Parameters)) {
		value := m.Parameters[name]
		switch {
		case name == "": // it would end the list on the way to the server
			return "", nil, stateProtocol, &malformed{"the start-up packet has a parameter without a name"}
		case name == parameterUser:
			if value != p.User {
				return "", nil, stateUser, fmt.Errorf("its sessions are of user %q: connect as that one", p.User)
			}
		case name == parameterDatabase:
			if value != database {
				return "", nil, stateDatabase, fmt.Errorf("its sessions are in database %q: connect to that one", database)
			}
		case name == parameterReplication:
			if !slices.Contains([]string{"false", "off", "no", "0"}, strings.ToLower(value)) {
				return "", nil, stateUnsupported, errors.New("its sessions are not for replication")
			}
		case strings.HasPrefix(name, optionPrefix):
			options = append(options, name)
		default:
			start.WriteString(name + "\x00" + value + "\x00")
		}
	}
	return Start(start.String()), options, "", nil
}

// parameters are those of a Start.
func parameters(s Start) map[string]string {
	all := map[string]string{}
	words := strings.Split(string(s), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		all[words[i]] = words[i+1]
	}
	return all
}

// cancel forwards a request to cancel what a session does, and returns when the server has taken it.
func (p Postgres) cancel(ctx context.Context, from Sessions, m *pgproto3.CancelRequest) error {
	conn, err := from.Dial(ctx)
	if err != nil {
		return fmt.Errorf("forwarding a cancel request: %w", err)
	}
	defer conn.Close()
	config, err := p.config(func(context.Context) (net.Conn, error) { return conn, nil })
	if err != nil {
		return err
	}
	c, err := pgconn.Construct(&pgconn.HijackedConn{Conn: conn, TLSConfig: p.TLS, Config: config, TxStatus: idle,
		PID: m.ProcessID, SecretKey: m.SecretKey})
	if err != nil {
		return fmt.Errorf("forwarding a cancel request: %w", err)
	}
	if err := c.CancelRequest(ctx); err != nil {
		return fmt.Errorf("forwarding a cancel request: %w", err)
	}
	return nil
}

// encrypt forwards a request for TLS. All that follows is between the client and the server.
func (p Postgres) encrypt(ctx context.Context, from Sessions, m *pgproto3.SSLRequest) (*Session, error) {
	request, err := m.Encode(nil)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	s, err := from.Take(ctx, Bare)
	if err != nil {
		return nil, fmt.Errorf("destination %q: %w", p.Name, err)
	}
	stop := until(ctx, s.Conn.SetDeadline)
	_, err = s.Conn.Write(request)
	if late := stop(); late != nil {
		err = late
	}
	if err != nil {
		_ = s.Conn.Close() // the error says why
		return nil, fmt.Errorf("destination %q: %w", p.Name, err)
	}
	return s, nil
}

// refuse tells the client, whose driver shows it, and returns the error.
func (p Postgres) refuse(client net.Conn, state string, err error) error {
	err = fmt.Errorf("destination %q: %w", p.Name, err)
	said, encoding := encoded(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state,
		Message: strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")})
	if encoding == nil {
		_ = answer(client, said) // a client that has left needs no answer
	}
	return err
}

func encoded(messages ...pgproto3.BackendMessage) (all []byte, err error) {
	for _, m := range messages {
		if all, err = m.Encode(all); err != nil {
			return nil, fmt.Errorf("encoding an answer: %w", err)
		}
	}
	return all, nil
}

// malformed is a packet that no driver sends.
type malformed struct{ reason string }

func (m *malformed) Error() string { return m.reason }

// receive reads packets up to one that is to be acted on.
func (p Postgres) receive(client net.Conn) (m pgproto3.FrontendMessage, err error) {
	left := io.EOF // an error of a client that leaves
	for range requests {
		if m, err = readStartup(client); err != nil {
			if bad := (*malformed)(nil); !errors.As(err, &bad) {
				err = left
			}
			return nil, err
		}
		switch m.(type) {
		case *pgproto3.SSLRequest:
			if p.Encrypted {
				return m, nil
			}
			left = ErrEncryption
		case *pgproto3.GSSEncRequest:
		default:
			return m, nil
		}
		if answer(client, []byte{'N'}) != nil {
			return nil, left
		}
	}
	return m, nil
}

// readStartup reads a packet and nothing beyond it: what a client sends already is the session's.
func readStartup(client io.Reader) (pgproto3.FrontendMessage, error) {
	var length [4]byte
	if _, err := io.ReadFull(client, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size < startupLeast || size > startupLimit {
		return nil, &malformed{"the start-up packet's length is wrong"}
	}
	packet := make([]byte, size)
	copy(packet, length[:])
	if _, err := io.ReadFull(client, packet[len(length):]); err != nil {
		return nil, err
	}
	version := binary.BigEndian.Uint32(packet[4:])
	const major = pgproto3.ProtocolVersion30 >> 16
	if version>>16 == major {
		// A server takes any minor version, and answers with its own.
		binary.BigEndian.PutUint32(packet[4:], pgproto3.ProtocolVersion30)
	}
	m, err := pgproto3.NewBackend(bytes.NewReader(packet), nil).ReceiveStartupMessage()
	if err != nil {
		return nil, &malformed{"the start-up packet is malformed: " + err.Error()}
	}
	if start, ok := m.(*pgproto3.StartupMessage); ok {
		start.ProtocolVersion = version
	}
	return m, nil
}
