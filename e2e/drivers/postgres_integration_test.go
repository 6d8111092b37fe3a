//go:build integration

package drivers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/session"
)

const password = "hunter2-a-secret"

func startPostgres(t *testing.T, settings ...string) (*testbed.Postgres, session.Postgres) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	address := netip.MustParseAddrPort(porttest.Address(t))
	p, err := testbed.StartPostgres(t.Context(), testbed.PostgresConfig{LogFile: log, Namespace: "/proc/self/ns/net",
		Address: address, User: "app", Password: password, Database: "shop", Settings: settings})
	if err != nil {
		said, _ := os.ReadFile(log)
		t.Fatalf("%v: %s", err, said)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	pem, err := os.ReadFile(p.Roots)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return p, session.Postgres{Name: "orders", User: "app", Password: password, Database: "shop",
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: address.Addr().String()}}
}

func dialer(address string) session.Dial {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
}

// behind starts a front of a server, and returns the directory of its socket, too.
func behind(t *testing.T, server *testbed.Postgres, p session.Protocol) (*front, string) {
	t.Helper()
	path := socket(t, ".s.PGSQL.5432")
	return listen(t, path, p, dialer(server.Address)), filepath.Dir(path)
}

// program runs a driver of Python or Node.
func program(t *testing.T, driver, path string) (string, error) {
	t.Helper()
	packages := programtest.Path(t, "drivers/python")
	cmd := exec.CommandContext(t.Context(), "python3", "drivers.py", driver, path)
	if driver == "node-pg" || driver == "ioredis" {
		// Node looks for packages where the program is.
		dir := t.TempDir()
		text, err := os.ReadFile("drivers.mjs")
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "drivers.mjs"), text, 0o600),
			os.Symlink(programtest.Path(t, "drivers/node/node_modules"), filepath.Join(dir, "node_modules"))); err != nil {
			t.Fatal(err)
		}
		cmd = exec.CommandContext(t.Context(), "node", filepath.Join(dir, "drivers.mjs"), driver, path)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	said, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(said)), err
}

// by is a program with that driver.
func by(driver string) func(*testing.T, string) (string, error) {
	return func(t *testing.T, path string) (string, error) { return program(t, driver, path) }
}

func psql(ctx context.Context, dir, more string, args ...string) *exec.Cmd {
	dsn := fmt.Sprintf("host=%s user=app dbname=shop application_name=psql %s", dir, more)
	return exec.CommandContext(ctx, "psql", append([]string{"-X", "-A", "-t", dsn}, args...)...)
}

const whoami = "select current_user || ' ' || current_database() || ' ' || current_setting('application_name')"

// byPGX asks who the session is, by pgx in that mode.
func byPGX(t *testing.T, dir, name string, mode pgx.QueryExecMode) (said string, err error) {
	c, err := pgx.ParseConfig(fmt.Sprintf("host=%s user=app dbname=shop application_name=%s", dir, name))
	if err != nil {
		return "", err
	}
	c.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), c)
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(t.Context(), whoami).Scan(&said)
	return said, errors.Join(err, conn.Close(t.Context()))
}

// Each driver works as it is, the second time with a session that waited for it.
func TestPostgresDrivers(t *testing.T) {
	server, p := startPostgres(t)
	byMode := func(name string, mode pgx.QueryExecMode) func(*testing.T, string) (string, error) {
		return func(t *testing.T, dir string) (string, error) { return byPGX(t, dir, name, mode) }
	}
	for driver, run := range map[string]func(t *testing.T, dir string) (string, error){
		"psql": func(t *testing.T, dir string) (string, error) {
			said, err := psql(t.Context(), dir, "sslmode=verify-full", "-c", whoami).CombinedOutput()
			return strings.TrimSpace(string(said)), err
		},
		"pgx":      byMode("pgx", pgx.QueryExecModeCacheStatement),
		"pgx-exec": byMode("pgx-exec", pgx.QueryExecModeExec),
		"psycopg":  by("psycopg"),
		"psycopg2": by("psycopg2"),
		"asyncpg":  by("asyncpg"),
		"node-pg":  by("node-pg"),
	} {
		t.Run(driver, func(t *testing.T) {
			f, dir := behind(t, server, p)
			for i := range 3 {
				said, err := run(t, dir)
				if want := "app shop " + driver; said != want || err != nil {
					t.Fatalf("%q, %v", said, err)
				}
				if taken, fresh := f.counts(); taken+fresh != 1 || fresh > 0 && i > 0 {
					t.Errorf("time %d: %d sessions that waited, %d fresh ones, start %q", i, taken, fresh, f.Last())
				}
				f.fill()
			}
		})
	}
}

// The session has the parameters of this driver, whichever the one before had.
func TestPostgresParameters(t *testing.T) {
	server, p := startPostgres(t)
	f, dir := behind(t, server, p)
	for _, more := range []string{
		"", "options='-c search_path=a,b'", "options='-c search_path=c' client_encoding=latin1",
	} {
		want := "\"$user\", public|UTF8"
		switch {
		case strings.Contains(more, "a,b"):
			want = "a,b|UTF8"
		case more != "":
			want = "c|LATIN1"
		}
		const query = "select current_setting('search_path'), current_setting('client_encoding')"
		said, err := psql(t.Context(), dir, more, "-c", query).CombinedOutput()
		if strings.TrimSpace(string(said)) != want || err != nil {
			t.Errorf("%s: %s, %v", more, said, err)
		}
		if taken, _ := f.counts(); taken > 0 {
			t.Errorf("%s: the session of another start was taken", more)
		}
		f.fill()
	}
	said, err := psql(t.Context(), dir, "options='-c no_such_thing=1'", "-c", "select 1").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "no_such_thing") {
		t.Errorf("%s, %v", said, err)
	}
}

func TestPostgresRefuses(t *testing.T) {
	server, p := startPostgres(t)
	_, dir := behind(t, server, p)
	wrong := p
	wrong.Password = "not-the-one"
	_, wrongDir := behind(t, server, wrong)
	for name, c := range map[string]struct{ dir, more, want string }{
		"user":            {dir, "user=root", `destination "orders": its sessions are of user "app"`},
		"database":        {dir, "dbname=postgres", `its sessions are in database "shop"`},
		"replication":     {dir, "replication=database", `not for replication`},
		"channel binding": {dir, "channel_binding=require", "channel binding required"},
		"password":        {wrongDir, "", "password authentication failed for user"},
	} {
		said, err := psql(t.Context(), c.dir, c.more, "-c", "select 1").CombinedOutput()
		if err == nil || !strings.Contains(string(said), c.want) || strings.Contains(string(said), password) {
			t.Errorf("%s: %s, %v", name, said, err)
		}
		t.Logf("%s: %s", name, said)
	}
	none := x509.NewCertPool()
	unknown := p
	unknown.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: none, ServerName: p.TLS.ServerName}
	if s, err := unknown.Open(t.Context(), dialer(server.Address), ""); err == nil {
		t.Error("the server's certificate is not verified: ", s)
	}
	unknown.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.TLS.RootCAs, ServerName: "another.example"}
	if s, err := unknown.Open(t.Context(), dialer(server.Address), ""); err == nil {
		t.Error("the server's name is not verified: ", s)
	}
}

// By TCP, drivers that prefer TLS do without. Those that insist speak with the server itself, if they may.
func TestPostgresEncrypted(t *testing.T) {
	server, p := startPostgres(t)
	try := func(p session.Postgres, more string) (f *front, said string, err error) {
		address := porttest.Address(t)
		f = listenOn(t, "tcp", address, p, dialer(server.Address))
		_, port, _ := net.SplitHostPort(address)
		const query = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
		out, err := psql(t.Context(), "127.0.0.1", "port="+port+" "+more, "-c", query).CombinedOutput()
		f.end()
		return f, strings.TrimSpace(string(out)), err
	}
	insists := fmt.Sprintf("sslmode=verify-full channel_binding=require sslrootcert=%s password=", server.Roots)
	if f, said, err := try(p, "sslmode=prefer"); said != "t" || err != nil || len(f.failed) > 0 {
		t.Errorf("%s, %v, %v", said, err, f.failed)
	}
	f, said, err := try(p, insists+password)
	if err == nil || len(f.failed) != 1 || !errors.Is(f.failed[0], session.ErrEncryption) {
		t.Errorf("%s, %v, %v", said, err, f.failed)
	}
	p.Encrypted = true
	if f, said, err := try(p, insists+password); said != "t" || err != nil || f.fresh > 0 {
		t.Errorf("%s, %v, %v", said, err, f.failed)
	}
	if _, said, err := try(p, insists+"wrong"); err == nil || !strings.Contains(said, "password authentication failed") {
		t.Errorf("%s, %v", said, err)
	}
	if f, said, err := try(p, "sslmode=disable"); said != "t" || err != nil || f.fresh != 1 {
		t.Errorf("%s, %v, %v", said, err, f.failed)
	}
}

func TestPostgresTooManyClients(t *testing.T) {
	server, p := startPostgres(t, "max_connections = 5", "superuser_reserved_connections = 3")
	f, dir := behind(t, server, p)
	var open []*session.Session
	for {
		s, err := p.Open(t.Context(), dialer(server.Address), "")
		if refused := (*session.Refusal)(nil); errors.As(err, &refused) {
			if !refused.Full() || refused.Denied() {
				t.Errorf("%v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	said, err := psql(t.Context(), dir, "", "-c", "select 1").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "53300") {
		t.Errorf("%s, %v", said, err)
	}
	var shown *pgconn.PgError
	if _, err := byPGX(t, dir, "x", pgx.QueryExecModeExec); !errors.As(err, &shown) || shown.Code != "53300" {
		t.Errorf("%v", err)
	}
	for _, s := range open {
		s.Conn.Close()
	}
	again := func(ctx context.Context) error { _, err := byPGX(t, dir, "x", pgx.QueryExecModeExec); return err }
	if err := testbed.Poll(t.Context(), limit, again); err != nil {
		t.Error(err)
	}
	f.counts()
}

// A session that waits ends with its server, and the next one is the new server's.
func TestPostgresRestarts(t *testing.T) {
	server, p := startPostgres(t)
	f, dir := behind(t, server, p)
	s, err := p.Open(t.Context(), dialer(server.Address), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Conn.Close()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Conn.SetReadDeadline(time.Now().Add(limit))
	said := make([]byte, 4096)
	n, err := s.Conn.Read(said)
	if err == nil && !strings.Contains(string(said[:n]), "57P01") { // the server says that it is being shut down
		t.Errorf("%q, %v", said[:n], err)
	}
	if said, err := byPGX(t, dir, "pgx", pgx.QueryExecModeExec); err != nil {
		t.Errorf("%q, %v", said, err)
	}
	f.counts()
}

// What a driver cancels is cancelled, and only that.
func TestPostgresCancels(t *testing.T) {
	server, p := startPostgres(t)
	f, dir := behind(t, server, p)
	f.fill()
	other, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s user=app dbname=shop", dir))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s user=app dbname=shop", dir))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	asleep := func(ctx context.Context) error {
		var n int
		err := other.QueryRow(ctx,
			"select count(*) from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'").Scan(&n)
		if err == nil && n == 0 {
			return errors.New("nothing sleeps")
		}
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "select pg_sleep(60)")
		done <- err
	}()
	if err := testbed.Poll(t.Context(), limit, asleep); err != nil {
		t.Fatal(err)
	}
	if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
		t.Error(err)
	}
	var cancelled *pgconn.PgError
	if err := <-done; !errors.As(err, &cancelled) || cancelled.Code != "57014" {
		t.Errorf("pgx: %v", err)
	}
	cmd := psql(t.Context(), dir, "", "-c", "select pg_sleep(60)")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := testbed.Poll(t.Context(), limit, asleep); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "canceling statement due to user request") {
		t.Errorf("psql: %s, %v", &said, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) > 0 {
		t.Error(f.failed)
	}
}

// Each session serves one program, and the start-up of one that waited is answered without the server.
func TestPostgresTime(t *testing.T) {
	server, p := startPostgres(t)
	f, dir := behind(t, server, p)
	for range 51 {
		f.fill()
		if _, err := byPGX(t, dir, "pgx", pgx.QueryExecModeExec); err != nil {
			t.Fatal(err)
		}
	}
	f.end()
	took := f.took[1:]
	slices.Sort(took)
	t.Logf("a session that waits is handed over in %v (median), %v (p95)", took[len(took)/2], took[len(took)*95/100])
	if taken, fresh := f.counts(); fresh > 1 {
		t.Errorf("%d sessions that waited, %d fresh ones", taken, fresh)
	}
}

// memoryLimit is how much a connection may cost the daemon, in bytes.
const memoryLimit = 64 << 10

// A session that waits costs little memory.
func TestMemory(t *testing.T) {
	server, p := startPostgres(t, "max_connections = 220")
	_, dial, r := startRedis(t)
	for name, c := range map[string]struct {
		session.Protocol
		session.Dial
	}{"postgres": {p, dialer(server.Address)}, "redis": {r, dial}} {
		const count = 200
		open := make([]*session.Session, count)
		before := heap()
		for i := range open {
			var err error
			if open[i], err = c.Open(t.Context(), c.Dial, ""); err != nil {
				t.Fatal(err)
			}
		}
		per := (heap() - before) / count
		t.Logf("%s: %d KiB for each session", name, per>>10)
		if per > memoryLimit {
			t.Errorf("%s: %d bytes for each session", name, per)
		}
		for _, s := range open {
			s.Conn.Close()
		}
	}
}

// heap is what is in use of Go's memory.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers have let go of, too
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
