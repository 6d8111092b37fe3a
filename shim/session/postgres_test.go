package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

var orders = Postgres{Name: "orders", User: "app", Password: "hunter2", Database: "shop"}

// cancelled is what fakePostgres is told to cancel.
type cancelled chan *pgproto3.CancelRequest

// fakePostgres takes any start-up. It tells the parameters as the session's own.
func fakePostgres(t *testing.T, status byte, c cancelled) Dial {
	return listen(t, func(number int, conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		m, err := b.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if m, is := m.(*pgproto3.CancelRequest); is {
			c <- m
			return
		}
		b.Send(&pgproto3.AuthenticationOk{})
		for k, v := range m.(*pgproto3.StartupMessage).Parameters {
			b.Send(&pgproto3.ParameterStatus{Name: k, Value: v})
		}
		b.Send(&pgproto3.BackendKeyData{ProcessID: uint32(number), SecretKey: []byte("1234")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		b.Flush()
		io.Copy(conn, conn)
	})
}

func startUp30(parameters ...string) *pgproto3.StartupMessage {
	m := &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{}}
	for i := 0; i < len(parameters); i += 2 {
		m.Parameters[parameters[i]] = parameters[i+1]
	}
	return m
}

func encodeFront(t testing.TB, m pgproto3.FrontendMessage) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPostgresAnswers(t *testing.T) {
	newer := startUp30("user", "app")
	newer.ProtocolVersion = pgproto3.ProtocolVersion32
	newest := startUp30("user", "app")
	newest.ProtocolVersion += 9999
	none := &pgproto3.NegotiateProtocolVersion{UnrecognizedOptions: []string{}}
	for name, c := range map[string]struct {
		*pgproto3.StartupMessage
		start Start
		vague *pgproto3.NegotiateProtocolVersion
		state string // refused
	}{
		"alike":          {StartupMessage: startUp30("user", "app", "database", "shop")},
		"nobody":         {StartupMessage: startUp30("application_name", "x"), start: "application_name\x00x\x00"},
		"parameters":     {StartupMessage: startUp30("b", "2", "user", "app", "a", "1"), start: "a\x001\x00b\x002\x00"},
		"no replication": {StartupMessage: startUp30("user", "app", "replication", "false")},
		"3.2":            {StartupMessage: newer, vague: none},
		"3.9999":         {StartupMessage: newest, vague: none},
		"option": {StartupMessage: startUp30("user", "app", "_pq_.x", "1"),
			vague: &pgproto3.NegotiateProtocolVersion{UnrecognizedOptions: []string{"_pq_.x"}}},
		"another user":     {StartupMessage: startUp30("user", "root"), state: "28000"},
		"another database": {StartupMessage: startUp30("user", "app", "database", "app"), state: "3D000"},
		"replication":      {StartupMessage: startUp30("user", "app", "replication", "database"), state: "0A000"},
		"no name":          {StartupMessage: startUp30("user", "app", "", "x"), state: "08P01"},
	} {
		t.Run(name, func(t *testing.T) {
			from := &sessions{t: t, protocol: orders, dial: fakePostgres(t, idle, nil)}
			client := accept(t.Context(), t, orders, from)
			for _, m := range []pgproto3.FrontendMessage{&pgproto3.GSSEncRequest{}, &pgproto3.SSLRequest{}} {
				client.send(encodeFront(t, m))
				var no [1]byte
				if _, err := io.ReadFull(client, no[:]); err != nil || no[0] != 'N' {
					t.Fatalf("%q, %v", no, err)
				}
			}
			if len(from.taken) > 0 {
				t.Error("a session is taken before the start-up packet")
			}
			client.send(encodeFront(t, c.StartupMessage))
			f := pgproto3.NewFrontend(client, client)
			if c.vague != nil {
				m, err := f.Receive()
				if err != nil || !reflect.DeepEqual(m, c.vague) {
					t.Errorf("%+v, %v", m, err)
				}
			}
			if c.state != "" {
				refused(t, f, c.state)
				if s, err := client.result(); s != nil || err == nil || len(from.taken) > 0 {
					t.Errorf("%v, %v, taken %q", s, err, from.taken)
				}
				return
			}
			status := map[string]string{}
			for ready := false; !ready; {
				m, err := f.Receive()
				if err != nil {
					t.Fatal(err)
				}
				switch m := m.(type) {
				case *pgproto3.ParameterStatus:
					status[m.Name] = m.Value
				case *pgproto3.BackendKeyData:
					if m.ProcessID != 1 || string(m.SecretKey) != "1234" {
						t.Errorf("not the session's key: %+v", m)
					}
				case *pgproto3.ReadyForQuery:
					ready = true
				case *pgproto3.AuthenticationOk:
				default:
					t.Errorf("got %T", m)
				}
			}
			want := parameters(c.start)
			want["user"], want["database"] = "app", "shop"
			if !maps.Equal(status, want) {
				t.Errorf("the session has %q, not %q", status, want)
			}
			s, err := client.result()
			if err != nil || s.Start != c.start || !slices.Equal(from.taken, []Start{c.start}) {
				t.Errorf("%+v, %v, taken %q", s, err, from.taken)
			}
			if _, is := s.Conn.(*net.TCPConn); !is {
				t.Errorf("it is a %T", s.Conn)
			}
		})
	}
}

// refused reads the error that a client is told.
func refused(t *testing.T, f *pgproto3.Frontend, state string) {
	t.Helper()
	m, err := f.Receive()
	e, is := m.(*pgproto3.ErrorResponse)
	if err != nil || !is || e.Severity != "FATAL" || e.Code != state || !strings.Contains(e.Message, `"orders"`) ||
		strings.Contains(e.Message, orders.Password) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestPostgresMalformed(t *testing.T) {
	ssl := encodeFront(t, &pgproto3.SSLRequest{})
	long := binary.BigEndian.AppendUint32(nil, startupLimit+1)
	for name, packet := range map[string][]byte{
		"long":     long,
		"short":    {0, 0, 0, 7},
		"HTTP":     []byte("GET / HTTP/1.1\r\n\r\n")[:4],
		"2.0":      {0, 0, 0, 8, 0, 2, 0, 0},
		"unended":  {0, 0, 0, 9, 0, 3, 0, 0, 'x'},
		"a flood":  slices.Concat(ssl, ssl, ssl, ssl),
		"a cancel": {0, 0, 0, 8, 4, 210, 22, 46},
	} {
		from := &sessions{t: t}
		client := accept(t.Context(), t, orders, from)
		go client.Write(packet)
		f := pgproto3.NewFrontend(client, client)
		if name == "a flood" {
			io.ReadFull(client, make([]byte, requests))
		}
		refused(t, f, stateProtocol)
		if s, err := client.result(); s != nil || err == nil || len(from.taken) > 0 {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestPostgresTakeFails(t *testing.T) {
	for want, err := range map[string]error{
		"08006": errors.New("dial tcp: refused"),
		"53300": fmt.Errorf("taking a session: %w", &Refusal{Code: "53300", Message: "too many clients"}),
	} {
		client := accept(t.Context(), t, orders, &sessions{t: t, err: err})
		client.send(encodeFront(t, startUp30("user", "app")))
		refused(t, pgproto3.NewFrontend(client, client), want)
		if s, got := client.result(); s != nil || !errors.Is(got, err) {
			t.Errorf("%v, %v", s, got)
		}
	}
}

// The client hears why, also when the reason is that its time is over.
func TestPostgresTakesTooLong(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from := &sessions{t: t, protocol: orders, dial: listen(t, func(int, net.Conn) { cancel() })}
	client := accept(ctx, t, orders, from)
	client.send(encodeFront(t, startUp30("user", "app")))
	refused(t, pgproto3.NewFrontend(client, client), stateConnection)
}

// What a client sends beyond the start-up packet is left for the session.
func TestPostgresLeavesTheRest(t *testing.T) {
	from := &sessions{t: t, protocol: orders, dial: fakePostgres(t, idle, nil)}
	client := accept(t.Context(), t, orders, from)
	go client.Write(append(encodeFront(t, startUp30("user", "app")), "rest"...))
	f := pgproto3.NewFrontend(client, client)
	for {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if _, ready := m.(*pgproto3.ReadyForQuery); ready {
			break
		}
	}
	client.result()
	rest := make([]byte, 4)
	if _, err := io.ReadFull(client.program, rest); err != nil || string(rest) != "rest" {
		t.Errorf("%q, %v", rest, err)
	}
}

// A client that leaves before it has the answer does not keep the session.
func TestPostgresClientLeavesLate(t *testing.T) {
	dial := fakePostgres(t, idle, nil)
	s, err := orders.Open(t.Context(), dial, "")
	if err != nil {
		t.Fatal(err)
	}
	client := accept(t.Context(), t, orders, &sessions{t: t, waiting: s})
	client.send(encodeFront(t, startUp30("user", "app")))
	client.Close()
	if got, err := client.result(); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := s.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the session is still there: %v", err)
	}
}

// A client that insists on TLS gets the server itself, if it may.
func TestPostgresEncrypted(t *testing.T) {
	client := accept(t.Context(), t, orders, &sessions{t: t})
	ssl := encodeFront(t, &pgproto3.SSLRequest{})
	client.send(ssl)
	io.ReadFull(client, make([]byte, 1))
	client.Close()
	if s, err := client.result(); s != nil || !errors.Is(err, ErrEncryption) {
		t.Errorf("%v, %v", s, err)
	}
	encrypted := orders
	encrypted.Encrypted = true
	from := &sessions{t: t, dial: listen(t, func(_ int, conn net.Conn) { io.Copy(conn, conn) })}
	client = accept(t.Context(), t, encrypted, from)
	client.send(ssl)
	s, err := client.result()
	if err != nil || s.Start != Bare || !slices.Equal(from.taken, []Start{Bare}) {
		t.Fatalf("%+v, %v, taken %q", s, err, from.taken)
	}
	got := make([]byte, len(ssl))
	if _, err := io.ReadFull(s.Conn, got); !slices.Equal(got, ssl) {
		t.Errorf("the server got %q, %v", got, err)
	}
}

func TestPostgresCancels(t *testing.T) {
	want := &pgproto3.CancelRequest{ProcessID: 7, SecretKey: []byte("a key of a newer server")}
	got := make(cancelled, 1)
	client := accept(t.Context(), t, orders, &sessions{t: t, dial: fakePostgres(t, idle, got)})
	client.send(encodeFront(t, want))
	if s, err := client.result(); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	if m := <-got; !reflect.DeepEqual(m, want) {
		t.Errorf("the server got %+v", m)
	}
}

func TestPostgresOpenFails(t *testing.T) {
	if s, err := orders.Open(t.Context(), fakePostgres(t, 'T', nil), ""); s != nil || err == nil {
		t.Errorf("in a transaction: %v, %v", s, err)
	}
	dial := listen(t, func(_ int, conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		b.ReceiveStartupMessage()
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"})
		b.Flush()
	})
	s, err := orders.Open(t.Context(), dial, "")
	var refused *Refusal
	if s != nil || !errors.As(err, &refused) || *refused != (Refusal{Code: "28P01", Message: "no"}) {
		t.Errorf("%v, %v", s, err)
	}
	down := func(context.Context) (net.Conn, error) { return nil, errors.New("down") }
	if s, err := orders.Open(t.Context(), down, ""); s != nil || err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, %v", s, err)
	}
}

// Whatever a client sends, it gets an answer or is left, and gets no session with what it may not ask for.
func FuzzPostgresAccept(f *testing.F) {
	f.Add(encodeFront(f, startUp30("user", "app", "options", "-c geqo=off")))
	f.Add(append(encodeFront(f, &pgproto3.SSLRequest{}), encodeFront(f, startUp30("database", "shop"))...))
	f.Add(encodeFront(f, &pgproto3.CancelRequest{ProcessID: 1, SecretKey: []byte("1234")}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		from := &recorder{}
		ours, theirs := net.Pipe()
		go func() {
			ours.SetWriteDeadline(time.Now().Add(limit))
			ours.Write(sent)
			ours.Close()
		}()
		go io.Copy(io.Discard, ours)
		orders.Accept(t.Context(), theirs, from)
		theirs.Close()
		for _, s := range from.taken {
			for name := range parameters(s) {
				if name == "" || name == "user" || name == "database" || name == "replication" {
					t.Errorf("a session is taken with %q", s)
				}
			}
		}
	})
}

// recorder has no sessions.
type recorder struct{ taken []Start }

var errNone = errors.New("none")

func (r *recorder) Last() Start { return "" }
func (r *recorder) Take(_ context.Context, s Start) (*Session, error) {
	r.taken = append(r.taken, s)
	return nil, errNone
}
func (r *recorder) Dial(context.Context) (net.Conn, error) { return nil, errNone }
