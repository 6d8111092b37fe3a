//go:build integration

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/query/image"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// queries deploys a function on the edge that asks a destination of PostgreSQL by its socket.
func queries(t *testing.T, name, destination string) {
	t.Helper()
	deploy(t, testbed.Function{Name: name, Image: image.Ref, Node: testbed.Edge,
		Template: map[string]string{"headstart.dev/connections": destination},
		Env:      bySocket(destination)})
}

// queriesByConnect deploys one that asks the server at its own address.
func queriesByConnect(t *testing.T, name, destination string) {
	t.Helper()
	deploy(t, testbed.Function{Name: name, Image: image.Ref, Node: testbed.Edge,
		Template: map[string]string{"headstart.dev/connections": destination,
			"headstart.dev/connections-by": "connect"},
		Env: byAddress("PGSSLMODE", "disable", "PGPASSWORD", serverPassword)})
}

// query has a function ask, by a connection of the request's own (/once) or by the one that it keeps (/kept).
func query(ctx context.Context, function, path, statement string) (string, error) {
	a, err := call{function: function, path: path + "?q=" + strings.ReplaceAll(statement, " ", "+")}.do(ctx)
	if err != nil {
		return "", err
	}
	var said struct{ Said, Error string }
	if err := json.Unmarshal(a.body, &said); err != nil || a.status != 200 {
		return "", fmt.Errorf("%d %.300s", a.status, a.body)
	}
	if said.Error != "" {
		return "", errors.New(said.Error)
	}
	return said.Said, nil
}

func mustQuery(t *testing.T, function, path, statement string) string {
	t.Helper()
	said, err := query(t.Context(), function, path, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return said
}

const backend = "select pg_backend_pid()::text"

// A function's second cold start has a connection that waits for it.
func TestASecondColdStartHasAConnection(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		queries(t, "cold-query", "orders")
		mustQuery(t, "cold-query", "/once", backend)
	})
	waits(t, "orders", 1)
	before := byWay(t, "orders", "pool")
	queries(t, "cold-query", "orders")
	mustQuery(t, "cold-query", "/once", backend)
	if got := byWay(t, "orders", "pool") - before; got != 1 {
		t.Errorf("%d connections had waited", got)
	}
}

// toldWithin is several times what programs may wait for while the daemon is killed: shims look for the new one 5 times
// a second, and it waits a second for them.
const toldWithin = 5 * time.Second

// tellNoDaemon are the words by which programs are told that the daemon is not there, or is killed just then.
var tellNoDaemon = []string{"connect: connection refused", "connection reset by peer", "broken pipe", "unexpected EOF"}

// Plain streams outlive the daemon, and those that pass it end: with TLS, unless the kernel has it. Whoever connects
// while it is killed is connected, or is told so at once, and later ones are connected.
func TestConnectionsAndAKilledDaemon(t *testing.T) {
	queries(t, "kept-socket", "plain")
	queriesByConnect(t, "kept-connect", "plain")
	queries(t, "kept-tls", "orders")
	plain := []string{"kept-socket", "kept-connect"}
	kept := map[string]string{}
	for _, f := range append(plain, "kept-tls") {
		kept[f] = mustQuery(t, f, "/kept", backend)
	}
	if n := byWay(t, "plain", "fresh") + byWay(t, "plain", "pool"); n < len(plain) {
		t.Errorf("the daemon has connected %d of %d programs", n, len(plain))
	}
	pumped, err := bed.Metric(t.Context(), testbed.Edge, "headstart_connections_pumped")
	if err != nil {
		t.Fatal(err)
	}
	var connected, refused atomic.Int64
	var asking sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer asking.Wait()
	defer stop()
	for i := range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := query(ctx, plain[i%len(plain)], "/once", backend)
				took := time.Since(began)
				said := func(words string) bool { return err != nil && strings.Contains(err.Error(), words) }
				switch {
				case ctx.Err() != nil:
				case took > toldWithin || err != nil && !slices.ContainsFunc(tellNoDaemon, said):
					t.Errorf("somebody who asked while the daemon was killed heard after %s: %v", took, err)
				case err == nil:
					connected.Add(1)
				default:
					refused.Add(1)
				}
			}
		})
	}
	for range 3 {
		killDaemon(t, testbed.Edge)
		for _, f := range plain {
			eventually(t, "new connections", func() error {
				_, err := query(t.Context(), f, "/once", backend)
				return err
			})
			if now := mustQuery(t, f, "/kept", backend); now != kept[f] {
				t.Errorf("%s: the connection is another one: %s, %s before", f, now, kept[f])
			}
		}
	}
	stop()
	asking.Wait()
	if t.Logf("%d were connected, %d were told", connected.Load(), refused.Load()); connected.Load() == 0 {
		t.Error("nobody was connected")
	}
	if now, err := query(t.Context(), "kept-tls", "/kept", backend); (err == nil) == (pumped > 0) {
		t.Errorf("of %g sessions by way of the daemon, %s is there as %s: %v", pumped, kept["kept-tls"], now, err)
	}
	mustQuery(t, "kept-tls", "/kept", backend)
}

// A server that restarts costs the connections that it had, and no later one.
func TestConnectionsAndAServerThatRestarts(t *testing.T) {
	queries(t, "restart-query", "orders")
	kept := mustQuery(t, "restart-query", "/kept", backend)
	if err := servers.postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := query(t.Context(), "restart-query", "/kept", backend); err == nil {
		t.Errorf("a session of the server before, %s, answers as %s", kept, now)
	}
	mustQuery(t, "restart-query", "/kept", backend)
	mustQuery(t, "restart-query", "/once", backend)
}

// A program that cannot be connected is told why, by its driver. The operator is told once, and the server is not asked
// again and again.
func TestConnectionsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct{ destination, user, database, says string }{
		"full":     {"full", "nobody", "shop", `too many connections for role "nobody"`},
		"denied":   {"denied", "app", "shop", `password authentication failed for user "app"`},
		"refused":  {"refused", "app", "shop", "connection refused"},
		"lost":     {"lost", "app", "app", "no such host"},
		"user":     {"orders", "root", "shop", `its sessions are of user "app"`},
		"database": {"orders", "app", "postgres", `its sessions are in database "shop"`},
	} {
		a := asks{name: "cannot-" + name, connections: c.destination, command: append(image.Psql, "select 1"),
			env: bySocket(c.destination, "PGUSER", c.user, "PGDATABASE", c.database)}
		began := time.Now()
		said, o, err := a.run(t.Context())
		if !strings.Contains(said, c.says) || o.Reason != "JobFailed" || err != nil {
			t.Errorf("%s: it said %q; %+v, %v", name, said, o, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	eventually(t, "problems", func() error {
		s, err := bed.Client().Status(t.Context())
		if err != nil {
			return err
		}
		var problems []string
		for _, n := range s.Nodes {
			if n.Name == testbed.Edge {
				for _, p := range n.Problems {
					problems = append(problems, p.Message)
				}
			}
		}
		for _, name := range []string{"full", "denied", "refused", "lost"} {
			problem := fmt.Sprintf("cannot connect to destination %q", name)
			if n := strings.Count(strings.Join(problems, "\n"), problem); n != 1 {
				return fmt.Errorf("%d problems of %s in %q", n, name, problems)
			}
		}
		return nil
	})
	log, err := os.ReadFile(filepath.Join(bed.LogDir(), "postgres.log"))
	if err != nil {
		t.Fatal(err)
	}
	// The program's own try, and those of the pool, which waits a second before the second one, then two.
	if n := bytes.Count(log, []byte("password authentication failed")); n == 0 || n > 8 {
		t.Errorf("the server has refused the password %d times", n)
	}
	noSecrets(t)
}

// noSecrets looks for passwords in the logs of all parts.
func noSecrets(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(bed.LogDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range []string{serverPassword, stalePassword} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has a password", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Whom the operator does not grant a destination cannot ask for it.
func TestADestinationOfOthers(t *testing.T) {
	err := bed.Apply(t.Context(), testbed.Function{Name: "others-query", Image: image.Ref,
		Template: map[string]string{"headstart.dev/connections": "others"}})
	if err == nil || !strings.Contains(err.Error(), "others") {
		t.Errorf("it is deployed: %v", err)
	}
}

// A server that ends idle sessions ends those that wait, too. Programs are connected all the same.
func TestAServerThatEndsIdleSessions(t *testing.T) {
	ended := func() int {
		return counted(t, "headstart_connections_discarded_total", `destination="plain",reason="ended"`)
	}
	set := func(to string) {
		t.Helper()
		if err := servers.postgres.Exec(context.WithoutCancel(t.Context()), "alter role app "+to); err != nil {
			t.Error(err)
		}
	}
	before := ended()
	set("set idle_session_timeout = '500ms'")
	defer set("reset idle_session_timeout")
	queries(t, "idle-query", "plain")
	asked := func() { // a session may end after it was handed out and before it is asked, as without Headstart
		t.Helper()
		eventually(t, "the server answers", func() error {
			_, err := query(t.Context(), "idle-query", "/once", backend)
			return err
		})
	}
	asked()
	eventually(t, "one that waited has ended", func() error {
		if ended() == before {
			return errors.New("none has")
		}
		return nil
	})
	asked()
}

// Programs connect twice, in children, and in the programs that they become, as without Headstart.
func TestSocketsOfPrograms(t *testing.T) {
	asks{name: "sockets", connections: "orders", by: "connect", command: append(image.Python, "sockets"),
		env: byAddress(),
	}.must(t, "again EISCONN True\nfork 0\nexec\nTrue\nexec\nTrue")
}

// All nodes together hold no more unused connections than the operator allows.
func TestTheBudget(t *testing.T) {
	var all []asks
	for _, name := range []string{"a", "b"} {
		all = append(all, asks{name: "budget-" + name, connections: "direct", by: "descriptor",
			command: append(image.Go, "descriptor", "direct", whoami),
			env:     byAddress("PGPASSWORD", serverPassword, "PGSSLMODE", "disable", "PGAPPNAME", "pgx")})
	}
	for range 2 {
		for _, a := range all {
			a.must(t, "app shop pgx")
			if n := unused(t, "direct"); n > 1 {
				t.Errorf("%d unused connections", n)
			}
		}
		waits(t, "direct", 1)
	}
	if byWay(t, "direct", "pool") == 0 {
		t.Error("no program has got the connection that waited")
	}
}

// descriptors is how many files a process has open. Pipes do not count: Go keeps some for splice(2).
func descriptors(t *testing.T, pid int) (n int) {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(all) == 0 {
		t.Fatalf("process %d has no descriptors: %v", pid, err)
	}
	for _, path := range all {
		if to, err := os.Readlink(path); err == nil && !strings.HasPrefix(to, "pipe:") { // else it is closed
			n++
		}
	}
	return n
}

// daemonDescriptors are those of the edge's daemon, without those of connections that wait, at a moment when their number stays.
func daemonDescriptors(t *testing.T) (n int) {
	t.Helper()
	waiting := func() (all int) {
		for _, name := range servers.names {
			all += unused(t, name)
		}
		return all
	}
	eventually(t, "the number of connections stays", func() error {
		before := waiting()
		n = descriptors(t, bed.PID("headstart-node-"+testbed.Edge)) - before
		if now := waiting(); now != before {
			return fmt.Errorf("%d wait, %d before", now, before)
		}
		return nil
	})
	return n
}

// shimOf is the process of an instance's shim.
func shimOf(t *testing.T, instance string) (pid int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		line, err := os.ReadFile(path)
		is := err == nil && bytes.Contains(line, []byte("containerd-shim-headstart-v2"))
		if is && bytes.Contains(line, []byte("\x00"+instance+"\x00")) {
			_, _ = fmt.Sscanf(path, "/proc/%d/", &pid) // it matches the pattern
			return pid
		}
	}
	t.Fatalf("no shim of %s", instance)
	return 0
}

// Neither the daemon nor the shim keeps a descriptor of connections that have ended.
func TestNoDescriptorsStay(t *testing.T) {
	queries(t, "descriptors-query", "plain")
	mustQuery(t, "descriptors-query", "/once", backend)
	instance := function(t, "descriptors-query").Instances[0].ID
	const callers, each = 5, 10
	jobs := func(n int) {
		var running sync.WaitGroup
		for i := range callers {
			a := asks{name: fmt.Sprintf("descriptors-%d", i), connections: "orders,plain,sessions", by: "descriptor",
				command: append(image.Psql, "select 1"),
				env:     bySocket("orders")}
			running.Go(func() {
				for range n {
					a.must(t, "1")
				}
			})
		}
		running.Wait()
	}
	jobs(1)
	shim := shimOf(t, instance)
	ofDaemon, ofShim := daemonDescriptors(t), descriptors(t, shim)
	jobs(each)
	for range callers * each {
		mustQuery(t, "descriptors-query", "/once", backend)
	}
	eventually(t, "descriptors are closed", func() error {
		if d, s := daemonDescriptors(t), descriptors(t, shim); d > ofDaemon || s > ofShim {
			return fmt.Errorf("the daemon has %d, %d before; the shim %d, %d before", d, ofDaemon, s, ofShim)
		}
		return nil
	})
}
