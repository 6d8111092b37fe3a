//go:build integration

package local

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	fmt.Fprintf(&b, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec:\n  template:\n    metadata:\n      annotations:\n", a.name)
	fmt.Fprintf(&b, "        headstart.dev/connections: %q\n", a.connections)
	if a.by != "" {
		fmt.Fprintf(&b, "        headstart.dev/connections-by: %s\n", a.by)
	}
	fmt.Fprintf(&b, "    spec:\n      runtimeClassName: headstart\n      restartPolicy: Never\n      nodeSelector: {kubernetes.io/hostname: %s}\n", testbed.Edge)
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
func (a asks) run(t *testing.T) (string, admin.JobOutcome) {
	t.Helper()
	before := printed(t, a.name)
	o := runJob(t, a.manifest())
	return strings.TrimSpace(strings.TrimPrefix(printed(t, a.name), before)), o
}

// must fails the test unless the program prints that.
func (a asks) must(t *testing.T, want string) {
	t.Helper()
	if said, o := a.run(t); said != want || o.Reason != admin.Succeeded {
		t.Errorf("%s said %q, want %q; %+v", a.name, said, want, o)
	}
}

// byWay is how many connections to a destination came that way.
func byWay(t *testing.T, destination, way string) int {
	t.Helper()
	n, err := bed.Metric(t.Context(), testbed.Edge, fmt.Sprintf("headstart_connection_handover_duration_seconds_count{destination=%q,way=%q}", destination, way))
	if err != nil {
		return 0 // none yet
	}
	return int(n)
}

// waits waits until so many unused connections to a destination wait on the edge.
func waits(t *testing.T, destination string, atLeast int) {
	t.Helper()
	err := testbed.Poll(t.Context(), settleTimeout+quietTime, func(ctx context.Context) error {
		n, err := bed.Metric(ctx, testbed.Edge, fmt.Sprintf("headstart_connections_unused{destination=%q}", destination))
		if err == nil && int(n) < atLeast {
			err = fmt.Errorf("there are %g", n)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%d connections to %s: %v", atLeast, destination, err)
	}
}

// redisSocket is where drivers find the destination sessions; db is that of the operator's list.
const redisSocket = "/headstart/socket/sessions/redis.sock"

// Unmodified drivers find a session at the socket that they are told, without a password: the first a fresh one, the second
// one that waits for it.
func TestDriversBySocket(t *testing.T) {
	var orders, sessions []asks
	for name, command := range map[string][]string{"psql": image.Psql, "pgx": append(slices.Clone(image.Go), "pg"),
		"psycopg": append(slices.Clone(image.Python), "pg"), "node-pg": append(slices.Clone(image.Node), "pg")} {
		orders = append(orders, asks{name: "socket-" + name, connections: "orders,sessions", command: append(command, whoami),
			env: map[string]string{"PGHOST": "/headstart/socket/orders", "PGUSER": "app", "PGDATABASE": "shop", "PGAPPNAME": name}})
	}
	url := "unix://" + redisSocket + "?db=2"
	whoami := []string{"ACL", "WHOAMI"}
	for name, c := range map[string]asks{
		"redis-cli": {command: append(slices.Clone(image.RedisCLI), "-s", redisSocket, "-n", "2")},
		"go-redis":  {command: append(slices.Clone(image.Go), "redis"), env: map[string]string{"REDIS_URL": url}},
		"redis-py":  {command: append(slices.Clone(image.Python), "redis"), env: map[string]string{"REDIS_URL": url}},
		"ioredis":   {command: append(slices.Clone(image.Node), "redis"), env: map[string]string{"REDIS_URL": redisSocket}},
	} {
		sessions = append(sessions, asks{name: "socket-" + name, connections: "orders,sessions", command: append(c.command, whoami...), env: c.env})
	}
	all := func(destination string) {
		for _, a := range orders {
			a.must(t, "app shop "+a.env["PGAPPNAME"])
		}
		for _, a := range sessions {
			a.must(t, "app")
		}
	}
	all("")
	waits(t, "orders", len(orders))
	waits(t, "sessions", len(sessions))
	before := map[string]int{"orders": byWay(t, "orders", "pool"), "sessions": byWay(t, "sessions", "pool")}
	all("")
	for destination, n := range map[string]int{"orders": len(orders), "sessions": len(sessions)} {
		if got := byWay(t, destination, "pool") - before[destination]; got != n {
			t.Errorf("%s: %d of %d connections had waited", destination, got, n)
		}
	}
}

// By connect(2) programs find the server at its own address, and have waiting sessions if they do without TLS; those that
// insist on TLS speak with the server itself, and log in there.
func TestDriversByConnect(t *testing.T) {
	for _, mode := range []string{"disable", "prefer", "verify-full"} {
		env := map[string]string{"PGHOST": servers.address, "PGPORT": fmt.Sprint(postgresPort), "PGUSER": "app", "PGDATABASE": "shop",
			"PGSSLMODE": mode, "PGPASSWORD": serverPassword}
		if mode == "disable" {
			env["PGPASSWORD"] = "" // nothing asks for it
		}
		for name, command := range map[string][]string{"psql": image.Psql, "pgx": append(slices.Clone(image.Go), "pg"),
			"psycopg": append(slices.Clone(image.Python), "pg"), "node-pg": append(slices.Clone(image.Node), "pg")} {
			a := asks{name: "connect-" + name + "-" + mode, connections: "orders,sessions", by: "connect", command: append(command, whoami), env: map[string]string{"PGAPPNAME": name}}
			for k, v := range env {
				a.env[k] = v
			}
			a.must(t, "app shop "+name)
		}
	}
	at := fmt.Sprintf("%s:%d/2", servers.address, redisTLSPort)
	cli := append(slices.Clone(image.RedisCLI), "-h", servers.address, "-p", fmt.Sprint(redisTLSPort), "-n", "2")
	for url, redisCLI := range map[string][]string{"redis://" + at: cli,
		"rediss://app:" + serverPassword + "@" + at: append(cli, "--tls", "--cacert", image.Roots, "--no-auth-warning", "--user", "app", "--pass", serverPassword)} {
		scheme, _, _ := strings.Cut(url, ":")
		for name, command := range map[string][]string{"redis-cli": redisCLI, "go-redis": append(slices.Clone(image.Go), "redis"),
			"redis-py": append(slices.Clone(image.Python), "redis"), "ioredis": append(slices.Clone(image.Node), "redis")} {
			asks{name: "connect-" + name + "-" + scheme, connections: "orders,sessions", by: "connect",
				command: append(command, "ACL", "WHOAMI"), env: map[string]string{"REDIS_URL": url}}.must(t, "app")
		}
	}
}

// The program has its connection as a descriptor, and no other descriptor than its own.
func TestDescriptors(t *testing.T) {
	asks{name: "descriptor-pgx", connections: "sessions,orders", by: "descriptor", command: append(slices.Clone(image.Go), "descriptor", "orders", whoami),
		env: map[string]string{"PGHOST": "/headstart/socket/orders", "PGUSER": "app", "PGDATABASE": "shop", "PGAPPNAME": "pgx"}}.must(t, "app shop pgx")
	for by, want := range map[string]string{
		"socket":     "0 /dev/null\n1 pipe\n2 pipe",
		"connect":    "0 /dev/null\n1 pipe\n2 pipe",
		"descriptor": "0 /dev/null\n1 pipe\n2 pipe\n3 socket\n4 socket",
	} {
		asks{name: "census-" + by, connections: "orders,sessions", by: by, command: append(slices.Clone(image.Python), "descriptors")}.must(t, want)
	}
}

// With the origin node the server sees the node; with the origin sandbox, the sandbox.
func TestOrigins(t *testing.T) {
	for destination, inside := range map[string]bool{"orders": false, "inside": true} {
		a := asks{name: "origin-" + destination, connections: destination, command: append(slices.Clone(image.Psql), "select inet_client_addr()"),
			env: map[string]string{"PGHOST": "/headstart/socket/" + destination, "PGUSER": "app", "PGDATABASE": "shop"}}
		for range 2 {
			said, o := a.run(t)
			at, err := netip.ParseAddr(said)
			if err != nil || bed.Node(testbed.Edge).PodSubnet.Contains(at) != inside {
				t.Errorf("%s: the server sees %q; %+v", destination, said, o)
			}
		}
	}
	if n := byWay(t, "inside", "ahead"); n < 2 {
		t.Errorf("%d connections were made in sandboxes ahead of their programs", n)
	}
}
