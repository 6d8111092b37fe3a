//go:build integration

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
	"github.com/headstart-mesh/headstart/e2e/functions/query/image"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// The ports of the servers that functions are connected to, all at one address in the cloud.
const (
	postgresPort = 7080 + iota
	redisPort
	redisTLSPort
	nobodysPort
)

// serverPassword is that of the user app, which programs do not know unless they log in by themselves. stalePassword is not.
const (
	serverPassword = "hunter2-a-secret"
	stalePassword  = "hunter1-changed-since"
)

// destinations are the servers, and what the operator says of them.
type destinations struct {
	authority *pki.Authority
	address   string // without a port
	list      string
	names     []string
	secrets   map[string]string

	postgres *testbed.Postgres
	redis    *testbed.Redis
}

// servers are what all tests of connections share.
var servers destinations

// plan makes the operator's list, before there are servers.
func (d *destinations) plan(c testbed.Config) (err error) {
	if d.authority, err = pki.New(); err != nil {
		return err
	}
	at, err := c.ServerAddress(0)
	if err != nil {
		return err
	}
	d.address = at.Addr().String()
	tls := "tls: {roots: " + fmt.Sprintf("%q", d.authority.PEM) + "}"
	d.names = []string{"orders", "plain", "inside", "full", "denied", "refused", "sessions", "cache", "direct", "lost", "others"}
	postgres := func(name, origin, user, secret, more string, port int) {
		d.list += fmt.Sprintf("- {name: %s, origin: %s, namespaces: [default], postgres: {address: '%s:%d', user: %s, database: shop, credentialsSecret: %s%s}}\n",
			name, origin, d.address, port, user, secret, more)
	}
	redis := func(name, more string, port int) {
		d.list += fmt.Sprintf("- {name: %s, origin: node, redis: {address: '%s:%d', user: app, db: 2, credentialsSecret: app%s}}\n", name, d.address, port, more)
	}
	postgres("orders", "node", "app", "app", ", "+tls, postgresPort)
	postgres("plain", "node", "app", "app", "", postgresPort)
	postgres("inside", "sandbox", "app", "app", ", "+tls, postgresPort)
	postgres("full", "node", "nobody", "app", "", postgresPort)
	postgres("denied", "node", "app", "stale-app", "", postgresPort)
	postgres("refused", "node", "app", "app", "", nobodysPort)
	redis("sessions", ", "+tls, redisTLSPort)
	redis("cache", "", redisPort)
	d.list += fmt.Sprintf("- {name: direct, origin: node, unused: 1, tcp: {address: '%s:%d'}}\n", d.address, postgresPort) +
		"- {name: lost, origin: node, postgres: {address: 'db.invalid:5432', user: app}}\n" +
		fmt.Sprintf("- {name: others, namespaces: [bank], tcp: {address: '%s:%d'}}\n", d.address, postgresPort)
	d.secrets = map[string]string{"app": "password = " + serverPassword + "\n", "stale-app": "password = " + stalePassword + "\n"}
	return nil
}

// start starts the servers of a test bed, and brings the image of the programs that ask them.
func (d *destinations) start(ctx context.Context, c testbed.Config) error {
	at := func(port uint16) testbed.PostgresConfig {
		address, _ := c.ServerAddress(port) // the test bed has the same
		return testbed.PostgresConfig{Address: address, Namespace: bed.ServerNamespace()}
	}
	postgres := at(postgresPort)
	postgres.LogFile = filepath.Join(bed.LogDir(), "postgres.log")
	postgres.User, postgres.Password, postgres.Database, postgres.Authority = "app", serverPassword, "shop", d.authority
	postgres.Settings = []string{"log_line_prefix = '%u '"}
	var err error
	if d.postgres, err = testbed.StartPostgres(ctx, postgres); err != nil {
		return err
	}
	// The server has no room for this user.
	if err := d.postgres.Exec(ctx, fmt.Sprintf("create role nobody login password '%s' connection limit 0", serverPassword)); err != nil {
		return err
	}
	d.redis, err = testbed.StartRedis(ctx, testbed.RedisConfig{DataDir: filepath.Join(filepath.Dir(bed.StateDir("")), "redis-app"),
		LogFile: filepath.Join(bed.LogDir(), "redis-app.log"), Address: at(redisPort).Address, Namespace: bed.ServerNamespace(),
		User: "app", Password: serverPassword, TLSPort: redisTLSPort, Authority: d.authority})
	if err != nil {
		return err
	}
	archive, err := image.Build(binaries, d.authority.PEM)
	if err != nil {
		return err
	}
	// The programs of these tests run on the edge alone: the image is large.
	_, err = containerd.Import(ctx, filepath.Join(bed.RunDir(), testbed.Edge, "containerd.sock"), strings.NewReader(string(archive)))
	return err
}

func (d *destinations) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if d.redis != nil {
		d.redis.Close(ctx)
	}
	if d.postgres != nil {
		d.postgres.Close(ctx)
	}
	return errors.Join(os.RemoveAll(filepath.Join(filepath.Dir(bed.StateDir("")), "redis-app")))
}
