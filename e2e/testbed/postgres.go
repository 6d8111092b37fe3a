package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
)

const (
	// postgresPrograms are Debian's; e2e/setup.sh installs them.
	postgresPrograms = "/usr/lib/postgresql/15/bin/"
	// postgresUser runs the server, which refuses to run as root, and is its superuser's name.
	postgresUser = "postgres"
	// postgresScript runs the server as its user, and makes a SIGTERM, which the server takes as "when the last client
	// has left", a SIGINT.
	postgresScript = `setpriv --reuid="$0" --regid="$0" --init-groups --pdeathsig INT "$@" &
trap 'kill -INT $!' TERM; wait; wait`
)

// Postgres is a PostgreSQL server in its own network namespace. It takes passwords by SCRAM, with TLS or without. Its
// database and its user are those of the configuration.
type Postgres struct {
	Address string
	// Roots is the file of the certificate (PEM) that the server's is verified with. That one is for the address.
	Roots string
	// Password is the superuser's.
	Password string

	config PostgresConfig
	dir    string
	group  *process.Group
	log    io.Closer
}

// PostgresConfig says where a PostgreSQL server runs.
type PostgresConfig struct {
	LogFile string
	// Namespace is the path of its network namespace, Address is there.
	Namespace string
	Address   netip.AddrPort
	// Authority signs its certificate; nil: one of its own does.
	Authority *pki.Authority
	// Name is a further name of its certificate; empty: none.
	Name                     string
	User, Password, Database string
	// Settings are lines of postgresql.conf, such as "max_connections = 10".
	Settings []string
}

// StartPostgres starts the server with a database that is new. Close ends both.
func StartPostgres(ctx context.Context, c PostgresConfig) (*Postgres, error) {
	log, err := os.Create(c.LogFile)
	if err != nil {
		return nil, err
	}
	// Not in a directory of the caller, which the server's user may not reach.
	dir, err := os.MkdirTemp("", "headstart-postgres-")
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &Postgres{Address: c.Address.String(), Roots: filepath.Join(dir, "roots.pem"), Password: random(), config: c,
		dir: dir, group: process.New(func(process.Exit) {}), log: log}
	if err := p.start(ctx, log); err != nil {
		p.Close(ctx)
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return p, nil
}

func (p *Postgres) start(ctx context.Context, log io.Writer) error {
	if err := p.create(ctx); err != nil {
		return err
	}
	err := p.group.Start(ctx, process.Spec{
		Name: "postgres", Path: "/bin/sh", NetNS: p.config.Namespace, Log: log, Restart: true, Env: os.Environ(),
		Args:  []string{"-c", postgresScript, postgresUser, postgresPrograms + "postgres", "-D", p.data()},
		Ready: func(ctx context.Context) error { return p.Usable(ctx) },
	})
	if err != nil {
		return err
	}
	// The caller's names and password have no quotes.
	role := fmt.Sprintf("create role %q login password '%s'", p.config.User, p.config.Password)
	if err := p.Exec(ctx, role); err != nil {
		return err
	}
	return p.Exec(ctx, fmt.Sprintf("create database %q owner %q", p.config.Database, p.config.User))
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// create makes the files of a server, with the settings.
func (p *Postgres) create(ctx context.Context) error {
	who, err := user.Lookup(postgresUser)
	if err != nil {
		return fmt.Errorf("e2e/setup.sh installs PostgreSQL: %w", err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	authority := p.config.Authority
	if authority == nil {
		if authority, err = pki.New(); err != nil {
			return err
		}
	}
	party := pki.Party{User: postgresUser, Addresses: []netip.Addr{p.config.Address.Addr()}}
	if p.config.Name != "" {
		party.Names = []string{p.config.Name}
	}
	pair, err := authority.Issue(party)
	if err != nil {
		return err
	}
	write := func(name string, content []byte, mode os.FileMode) {
		name = filepath.Join(p.dir, name)
		err = errors.Join(err, os.WriteFile(name, content, mode), os.Chown(name, uid, gid))
	}
	write("password", []byte(p.Password), 0o600)
	if err := errors.Join(err, os.Chown(p.dir, uid, gid), os.Chmod(p.dir, 0o755)); err != nil { // Roots is for all
		return err
	}
	initdb := exec.CommandContext(ctx, postgresPrograms+"initdb", "--no-sync", "--no-locale", "--encoding", "UTF8",
		"--auth", "scram-sha-256", "--username", postgresUser, "--pwfile", filepath.Join(p.dir, "password"), p.data())
	initdb.Dir = p.dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if said, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, said)
	}
	write("roots.pem", authority.PEM, 0o644)
	write("server.crt", pair.Cert, 0o600)
	write("server.key", pair.Key, 0o600)
	write("data/pg_hba.conf", []byte("host all all all scram-sha-256\n"), 0o600)
	write("data/postgresql.auto.conf", []byte(strings.Join(append([]string{
		fmt.Sprintf("listen_addresses = '%s'", p.config.Address.Addr()),
		fmt.Sprintf("port = %d", p.config.Address.Port()),
		"unix_socket_directories = ''",
		"ssl = on",
		fmt.Sprintf("ssl_cert_file = '%s/server.crt'", p.dir),
		fmt.Sprintf("ssl_key_file = '%s/server.key'", p.dir),
		"fsync = off",
	}, p.config.Settings...), "\n")+"\n"), 0o600)
	return err
}

// Usable tells whether the server takes clients.
func (p *Postgres) Usable(ctx context.Context) error {
	return Poll(ctx, readyTimeout, func(ctx context.Context) error { return p.Exec(ctx, "select 1") })
}

// Exec runs a statement as the superuser, by a connection of its own.
func (p *Postgres) Exec(ctx context.Context, statement string) error {
	_, err := p.Rows(ctx, statement)
	return err
}

// Rows is Exec, and returns the rows of the answer as they are written.
func (p *Postgres) Rows(ctx context.Context, statement string) (rows [][]string, err error) {
	c, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=disable",
		p.config.Address.Addr(), p.config.Address.Port(), postgresUser, p.Password, postgresUser))
	if err != nil {
		return nil, err
	}
	c.DialFunc = dialIn(p.config.Namespace)
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	results, err := conn.Exec(ctx, statement).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			var words []string
			for _, v := range row {
				words = append(words, string(v))
			}
			rows = append(rows, words)
		}
	}
	return rows, errors.Join(err, conn.Close(ctx))
}

// Restart ends the server and all its sessions, and waits until it takes clients again.
func (p *Postgres) Restart(ctx context.Context) error {
	file, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	gone := func(context.Context) error {
		if syscall.Kill(pid, 0) == nil {
			return errors.New("it has not ended")
		}
		return nil
	}
	if err := Poll(ctx, readyTimeout, gone); err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	return p.Usable(ctx)
}

// Close ends the server and removes what it holds.
func (p *Postgres) Close(ctx context.Context) {
	p.group.Stop(ctx)
	_ = p.log.Close()       // the server's last words are lost, if that
	_ = os.RemoveAll(p.dir) // a directory of its own, which nothing finds again
}
