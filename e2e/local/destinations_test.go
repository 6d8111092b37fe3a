//go:build integration

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

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

// redisDB is the database that the destinations of the kind redis have.
const redisDB = 2

// serverPassword is that of the user app, which programs do not know unless they log in by themselves. stalePassword is
// not.
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
	postgres := func(name, origin, user, secret, more string, port int) {
		d.add(name, fmt.Sprintf("origin: %s, namespaces: [default], postgres: "+
			"{address: '%s:%d', user: %s, database: shop, credentialsSecret: %s%s}",
			origin, d.address, port, user, secret, more))
	}
	redis := func(name, origin, more string, port int) {
		d.add(name, fmt.Sprintf("origin: %s, redis: {address: '%s:%d', user: app, db: %d, credentialsSecret: app%s}",
			origin, d.address, port, redisDB, more))
	}
	postgres("orders", "node", "app", "app", ", "+tls, postgresPort)
	postgres("plain", "node", "app", "app", "", postgresPort)
	postgres("inside", "sandbox", "app", "app", ", "+tls, postgresPort)
	postgres("full", "node", "nobody", "app", "", postgresPort)
	postgres("denied", "node", "app", "stale-app", "", postgresPort)
	postgres("refused", "node", "app", "app", "", nobodysPort)
	redis("sessions", "node", ", "+tls, redisTLSPort)
	redis("sessions-inside", "sandbox", "", redisPort)
	redis("cache", "node", "", redisPort)
	d.add("direct", fmt.Sprintf("origin: node, unused: 1, tcp: {address: '%s:%d'}", d.address, postgresPort))
	d.add("web", fmt.Sprintf("origin: node, namespaces: [default], tcp: {address: '%s:%d'}", d.address, testbed.StorePort))
	d.add("others", fmt.Sprintf("namespaces: [bank], tcp: {address: '%s:%d'}", d.address, postgresPort))
	d.add("lost", "origin: node, postgres: {address: 'db.invalid:5432', user: app}")
	d.secrets = map[string]string{"app": "password = " + serverPassword + "\n",
		"stale-app": "password = " + stalePassword + "\n"}
	return nil
}

func (d *destinations) add(name, of string) {
	d.names = append(d.names, name)
	d.list += "- {name: " + name + ", " + of + "}\n"
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
	nobody := fmt.Sprintf("create role nobody login password '%s' connection limit 0", serverPassword)
	if err := d.postgres.Exec(ctx, nobody); err != nil {
		return err
	}
	d.redis, err = testbed.StartRedis(ctx, testbed.RedisConfig{DataDir: redisDir(),
		LogFile: filepath.Join(bed.LogDir(), "redis-app.log"), Namespace: bed.ServerNamespace(),
		Address: at(redisPort).Address, User: "app", Password: serverPassword,
		TLSPort: redisTLSPort, Authority: d.authority})
	if err != nil {
		return err
	}
	archive, err := image.Build(binaries, d.authority.PEM)
	if err != nil {
		return err
	}
	// The programs of these tests run on the edge alone: the image is large.
	socket := filepath.Join(bed.RunDir(), testbed.Edge, "containerd.sock")
	_, err = containerd.Import(ctx, socket, bytes.NewReader(archive))
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
	return os.RemoveAll(redisDir())
}

func redisDir() string { return filepath.Join(filepath.Dir(bed.StateDir("")), "redis-app") }
