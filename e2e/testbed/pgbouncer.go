package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

const (
	// pgBouncerProgram is Debian's; e2e/setup.sh installs it.
	pgBouncerProgram = "/usr/sbin/pgbouncer"
	// pgBouncerPort is part of its socket's name.
	pgBouncerPort = 6432
)

// PgBouncer is a pooler of PostgreSQL's sessions that programs reach by a unix socket. It asks them for no password.
type PgBouncer struct {
	// Dir has the socket, for everybody. Drivers take it as a host.
	Dir string

	group *process.Group
	log   io.Closer
}

// StartPgBouncer starts one that has two sessions with the server, by TLS, and lends each to one program at a time.
// namespace is the path of its network namespace. Close ends it.
func StartPgBouncer(ctx context.Context, logFile, namespace string, p *Postgres) (*PgBouncer, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headstart-pgbouncer-")
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b := &PgBouncer{Dir: filepath.Join(dir, "socket"), group: process.New(func(process.Exit) {}), log: log}
	if err := b.start(ctx, log, namespace, p, dir); err != nil {
		b.Close(ctx)
		return nil, fmt.Errorf("starting PgBouncer: %w", err)
	}
	return b, nil
}

func (b *PgBouncer) start(ctx context.Context, log io.Writer, namespace string, p *Postgres, dir string) error {
	who, err := user.Lookup(postgresUser)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	c := p.config
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%d dbname=%s user=%s password=%s
[pgbouncer]
unix_socket_dir = %s
unix_socket_mode = 0777
listen_port = %d
auth_type = any
pool_mode = session
min_pool_size = 2
server_tls_sslmode = verify-full
server_tls_ca_file = %s
`, c.Database, c.Address.Addr(), c.Address.Port(), c.Database, c.User, c.Password, b.Dir, pgBouncerPort, p.Roots)
	file := filepath.Join(dir, "pgbouncer.ini")
	err = errors.Join(os.Mkdir(b.Dir, 0o755), os.WriteFile(file, []byte(config), 0o600), os.Chmod(dir, 0o755),
		os.Chown(b.Dir, uid, gid), os.Chown(file, uid, gid))
	if err != nil {
		return err
	}
	return b.group.Start(ctx, process.Spec{
		Name: "pgbouncer", Path: "/usr/bin/setpriv", NetNS: namespace, Log: log, Restart: true, Env: os.Environ(),
		Args: []string{"--reuid=" + postgresUser, "--regid=" + postgresUser, "--init-groups", pgBouncerProgram,
			"--quiet", file},
		Ready: process.Poll(func(ctx context.Context) error {
			socket := filepath.Join(b.Dir, fmt.Sprintf(".s.PGSQL.%d", pgBouncerPort))
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				return err
			}
			return conn.Close()
		}),
	})
}

// Close ends it and removes what it holds.
func (b *PgBouncer) Close(ctx context.Context) {
	b.group.Stop(ctx)
	_ = b.log.Close()                     // its last words are lost, if that
	_ = os.RemoveAll(filepath.Dir(b.Dir)) // a directory of its own, which nothing finds again
}
