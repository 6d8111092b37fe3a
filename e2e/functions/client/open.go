package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const (
	// sockets is where a sandbox has those of its destinations.
	sockets = "/headstart/socket/"
	// firstDescriptor is the first one that a program inherits.
	firstDescriptor = 3
	// roots is what servers are verified with, in the image.
	roots = "/roots.pem"
	// messageBytes are sent to a server that sends them back.
	messageBytes = 64
)

func open(ctx context.Context, kind, way, target string) (asker, error) {
	switch kind {
	case "tcp":
		c, err := connect(ctx, way, target, "tcp.sock")
		return echo{c}, err
	case "tls":
		return openTLS(ctx, way, target)
	case "postgres":
		return openPostgres(ctx, way, target)
	case "redis":
		return openRedis(way, target)
	}
	return nil, errors.New("this kind is not known")
}

// connect returns a connection by one of the ways.
func connect(ctx context.Context, way, target, socket string) (net.Conn, error) {
	switch way {
	case "dial":
		return new(net.Dialer).DialContext(ctx, "tcp", target)
	case "socket":
		return new(net.Dialer).DialContext(ctx, "unix", sockets+target+"/"+socket)
	case "descriptor":
		return inherited(target)
	case "fetch":
		return fetched(target)
	}
	return nil, errors.New("this way is not known")
}

// inherited is the connection to a destination that the program has from its start.
func inherited(destination string) (net.Conn, error) {
	i := slices.Index(strings.Split(os.Getenv("HEADSTART_DESCRIPTORS"), ":"), destination)
	if i < 0 {
		return nil, errors.New("nothing is inherited")
	}
	f := os.NewFile(uintptr(firstDescriptor+i), destination)
	defer f.Close() // the connection has a copy
	return net.FileConn(f)
}

// fetched asks the daemon for a connection.
func fetched(destination string) (net.Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: sockets + destination + "/descriptor.sock"})
	if err != nil {
		return nil, err
	}
	defer c.Close() // it was only read from
	var said [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(said[:], rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d descriptors came: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors came: %w", len(fds), err)
	}
	f := os.NewFile(uintptr(fds[0]), destination)
	defer f.Close() // the connection has a copy
	return net.FileConn(f)
}

// echo is a server that sends back what it gets.
type echo struct{ net.Conn }

func (e echo) ask(context.Context) error {
	var message [messageBytes]byte
	if _, err := e.Write(message[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(e, message[:])
	return err
}

func (e echo) close() { _ = e.Close() } // the program ends

func openTLS(ctx context.Context, way, target string) (asker, error) {
	if way != "dial" { // somebody else has it secured
		c, err := connect(ctx, way, target, "tls.sock")
		return echo{c}, err
	}
	pem, err := os.ReadFile(roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", target)
	return echo{c}, err
}

// postgres is a session.
type postgres struct {
	conn *pgx.Conn
	pid  int32
}

// openPostgres takes a connection string or a destination. Only with the former the program has a password.
func openPostgres(ctx context.Context, way, target string) (*postgres, error) {
	said := target
	if way != "dial" {
		said = fmt.Sprintf("host=%s%s user=%s dbname=%s", sockets, target, os.Getenv("CLIENT_USER"),
			os.Getenv("CLIENT_DATABASE"))
	}
	config, err := pgx.ParseConfig(said)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each query
	if way != "dial" && way != "socket" {
		config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return connect(ctx, way, target, "")
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	return &postgres{conn: conn}, err
}

func (p *postgres) ask(ctx context.Context) error {
	return p.conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&p.pid)
}

func (p *postgres) close() { _ = p.conn.Close(context.Background()) } // the program ends

// key is what Redis is asked for. It is not there.
const key = "client"

type keyspace struct{ *redis.Client }

func openRedis(way, target string) (asker, error) {
	o := &redis.Options{Network: "unix", Addr: sockets + target + "/redis.sock"}
	switch way {
	case "dial":
		o = &redis.Options{Addr: target, Username: os.Getenv("CLIENT_USER"), Password: os.Getenv("CLIENT_PASSWORD")}
	case "socket":
	default:
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, way, target, "") }
	}
	return keyspace{redis.NewClient(o)}, nil
}

func (k keyspace) ask(ctx context.Context) error {
	if err := k.Get(ctx, key).Err(); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("the answer is no nil: %w", err)
	}
	return nil
}

func (k keyspace) close() { _ = k.Close() } // the program ends
