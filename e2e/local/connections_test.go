//go:build integration

package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/functions/query/image"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// whoami says whose the session is; the driver is the name that it gives itself.
const whoami = "select current_user || ' ' || current_database() || ' ' || current_setting('application_name')"

// quietTime is how long a control plane deals no unused connections after it has taken over.
const quietTime = 36 * time.Second

// asks is a job on the edge that is connected.
type asks struct {
	name, connections string
	by                string // empty: by default
	command           []string
	env               map[string]string
}

func (a asks) manifest() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\n", a.name)
	b.WriteString("spec:\n  template:\n    metadata:\n      annotations:\n")
	fmt.Fprintf(&b, "        headstart.dev/connections: %q\n", a.connections)
	if a.by != "" {
		fmt.Fprintf(&b, "        headstart.dev/connections-by: %s\n", a.by)
	}
	b.WriteString("    spec:\n      runtimeClassName: headstart\n      restartPolicy: Never\n")
	fmt.Fprintf(&b, "      nodeSelector: {kubernetes.io/hostname: %s}\n", testbed.Edge)
	fmt.Fprintf(&b, "      containers:\n      - name: program\n        image: %s\n        command:\n", image.Ref)
	for _, word := range a.command {
		fmt.Fprintf(&b, "        - %q\n", word)
	}
	b.WriteString("        env:\n        - {name: PGCONNECT_TIMEOUT, value: \"20\"}\n")
	for k, v := range a.env {
		fmt.Fprintf(&b, "        - {name: %s, value: %q}\n", k, v)
	}
	return b.String()
}

// run returns what the program has printed.
func (a asks) run(ctx context.Context) (said string, o admin.JobOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	log := filepath.Join(bed.StateDir(testbed.Edge), "logs", "default."+a.name+".log")
	before, _ := os.ReadFile(log) // of an earlier run, if there was one
	if o, err = bed.Client().RunJob(ctx, strings.NewReader(a.manifest())); err != nil {
		return "", o, err
	}
	after, err := os.ReadFile(log)
	return strings.TrimSpace(strings.TrimPrefix(string(after), string(before))), o, err
}

// must fails the test unless the program prints that.
func (a asks) must(t *testing.T, want string) {
	t.Helper()
	if said, o, err := a.run(t.Context()); said != want || o.Reason != admin.Succeeded || err != nil {
		t.Errorf("%s said %q, want %q; %+v, %v", a.name, said, want, o, err)
	}
}

// atOnce is how many programs start at a time.
const atOnce = 4

// together has programs print what they are to, by their names.
func together(t *testing.T, all []asks, want func(asks) string) {
	t.Helper()
	var running errgroup.Group
	running.SetLimit(atOnce)
	for _, a := range all {
		running.Go(func() error { a.must(t, want(a)); return nil })
	}
	_ = running.Wait() // none has an error
}

// counted is a metric of the edge's daemon with labels; 0: it has none of these yet.
func counted(t *testing.T, name, labels string) int {
	t.Helper()
	n, _ := bed.Metric(t.Context(), testbed.Edge, name+"{"+labels+"}")
	return int(n)
}

// byWay is how many connections to a destination came that way.
func byWay(t *testing.T, destination, way string) int {
	t.Helper()
	labels := fmt.Sprintf("destination=%q,way=%q", destination, way)
	return counted(t, "headstart_connection_handover_duration_seconds_count", labels)
}

// unused is how many connections to a destination wait on the edge.
func unused(t *testing.T, destination string) int {
	t.Helper()
	return counted(t, "headstart_connections_unused", fmt.Sprintf("destination=%q", destination))
}

// waits waits until so many do.
func waits(t *testing.T, destination string, atLeast int) {
	t.Helper()
	err := testbed.Poll(t.Context(), settleTimeout+quietTime, func(context.Context) error {
		if n := unused(t, destination); n < atLeast {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%d connections to %s: %v", atLeast, destination, err)
	}
}

// variables are an environment by which drivers of PostgreSQL connect as the user of the operator's list.
func variables(host string, more ...string) map[string]string {
	env := map[string]string{"PGHOST": host, "PGUSER": "app", "PGDATABASE": "shop"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// bySocket has them connect to a destination's socket, and byAddress to the server's own address.
func bySocket(destination string, more ...string) map[string]string {
	return variables("/headstart/socket/"+destination, more...)
}

func byAddress(more ...string) map[string]string {
	return variables(servers.address, append([]string{"PGPORT", fmt.Sprint(postgresPort)}, more...)...)
}

// redisSocket is where drivers find the destination sessions.
const redisSocket = "/headstart/socket/sessions/redis.sock"

// postgresDrivers are commands that ask PostgreSQL, by the name that each driver gives itself.
func postgresDrivers() map[string][]string {
	return map[string][]string{"psql": append(image.Psql, whoami), "pgx": append(image.Go, "pg", whoami),
		"psycopg": append(image.Python, "pg", whoami), "node-pg": append(image.Node, "pg", whoami)}
}

// redisDrivers are those of Redis; redis-cli has arguments that say where the server is.
func redisDrivers(arguments ...string) map[string][]string {
	words := []string{"ACL", "WHOAMI"}
	return map[string][]string{"redis-cli": slices.Concat(image.RedisCLI, arguments, words),
		"go-redis": slices.Concat(image.Go, []string{"redis"}, words),
		"redis-py": slices.Concat(image.Python, []string{"redis"}, words),
		"ioredis":  slices.Concat(image.Node, []string{"redis"}, words)}
}

// whose is what a driver prints: whose its session is.
func whose(a asks) string {
	if name := a.env["PGAPPNAME"]; name != "" {
		return "app shop " + name
	}
	return "app"
}

// Unmodified drivers find a session at the socket that they are told, without a password: the first a fresh one, the
// second one that waits for it.
func TestDriversBySocket(t *testing.T) {
	var all []asks
	for name, command := range postgresDrivers() {
		all = append(all, asks{name: "socket-" + name, connections: "orders,sessions", command: command,
			env: bySocket("orders", "PGAPPNAME", name)})
	}
	for name, command := range redisDrivers("-s", redisSocket, "-n", "2") {
		url := "unix://" + redisSocket + "?db=2"
		if name == "ioredis" {
			url = redisSocket
		}
		all = append(all, asks{name: "socket-" + name, connections: "orders,sessions", command: command,
			env: map[string]string{"REDIS_URL": url}})
	}
	together(t, all, whose)
	before := map[string]int{}
	for _, destination := range []string{"orders", "sessions"} {
		waits(t, destination, len(all)/2)
		before[destination] = byWay(t, destination, "pool")
	}
	together(t, all, whose)
	for destination, n := range before {
		if got := byWay(t, destination, "pool") - n; got != len(all)/2 {
			t.Errorf("%s: %d of %d connections had waited", destination, got, len(all)/2)
		}
	}
}

// By connect(2) programs find the server at its own address, and have a session if they do without TLS; those that ask
// for TLS speak with the server itself, and log in there.
func TestDriversByConnect(t *testing.T) {
	var all []asks
	add := func(name string, command []string, env map[string]string) {
		all = append(all, asks{name: "connect-" + name, connections: "orders,sessions", by: "connect", command: command,
			env: env})
	}
	passwords := map[string]string{"disable": "", "prefer": serverPassword, "verify-full": serverPassword}
	for mode, password := range passwords {
		for name, command := range postgresDrivers() {
			add(name+"-"+mode, command, byAddress("PGSSLMODE", mode, "PGPASSWORD", password, "PGAPPNAME", name))
		}
	}
	at := fmt.Sprintf("%s:%d/2", servers.address, redisTLSPort)
	cli := []string{"-h", servers.address, "-p", fmt.Sprint(redisTLSPort), "-n", "2"}
	for name, command := range redisDrivers(cli...) {
		add(name+"-plain", command, map[string]string{"REDIS_URL": "redis://" + at})
	}
	cli = append(cli, "--tls", "--cacert", image.Roots, "--no-auth-warning", "--user", "app", "--pass", serverPassword)
	for name, command := range redisDrivers(cli...) {
		add(name+"-tls", command, map[string]string{"REDIS_URL": "rediss://app:" + serverPassword + "@" + at})
	}
	handed := func() (n int) {
		for _, destination := range []string{"orders", "sessions"} {
			n += byWay(t, destination, "pool") + byWay(t, destination, "fresh")
		}
		return n
	}
	before := handed()
	together(t, all, whose)
	if got := handed() - before; got < len(all) {
		t.Errorf("%d connections for %d programs", got, len(all))
	}
}

// A query is cancelled by the address that its connection is to, of which pgx asks the kernel.
func TestCancelByConnect(t *testing.T) {
	asks{name: "connect-cancel", connections: "orders", by: "connect", command: append(image.Go, "cancel"),
		env: byAddress("PGSSLMODE", "disable", "PGAPPNAME", "pgx")}.must(t, "57014")
}

// The program has its connection as a descriptor, and no other descriptor than its own.
func TestDescriptors(t *testing.T) {
	asks{name: "descriptor-pgx", connections: "sessions,orders", by: "descriptor",
		command: append(image.Go, "descriptor", "orders", whoami), env: bySocket("orders", "PGAPPNAME", "pgx"),
	}.must(t, "app shop pgx")
	for by, want := range map[string]string{
		"socket":     "0 /dev/null\n1 pipe\n2 pipe",
		"connect":    "0 /dev/null\n1 pipe\n2 pipe",
		"descriptor": "0 /dev/null\n1 pipe\n2 pipe\n3 socket\n4 socket",
	} {
		asks{name: "census-" + by, connections: "orders,sessions", by: by,
			command: append(image.Python, "descriptors")}.must(t, want)
	}
}

// With the origin node the server sees the node; with the origin sandbox, the sandbox.
func TestOrigins(t *testing.T) {
	for destination, inside := range map[string]bool{"orders": false, "inside": true} {
		a := asks{name: "origin-" + destination, connections: destination,
			command: append(image.Psql, "select inet_client_addr()"), env: bySocket(destination)}
		for range 2 {
			said, o, err := a.run(t.Context())
			at, invalid := netip.ParseAddr(said)
			if err != nil || invalid != nil || bed.Node(testbed.Edge).PodSubnet.Contains(at) != inside {
				t.Errorf("%s: the server sees %q; %+v, %v", destination, said, o, err)
			}
		}
	}
	if n := byWay(t, "inside", "ahead"); n < 2 {
		t.Errorf("%d connections were made in sandboxes ahead of their programs", n)
	}
}
