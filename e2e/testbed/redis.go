package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
)

// redisServer is Debian's program; e2e/setup.sh installs it.
const redisServer = "/usr/bin/redis-server"

// Redis is a Redis server in its own network namespace. It keeps nothing on disk.
type Redis struct {
	Address string

	client *redis.Client
	group  *process.Group
	log    io.Closer
}

// RedisConfig says where a Redis server runs.
type RedisConfig struct {
	// DataDir gets its configuration, LogFile its words.
	DataDir, LogFile string
	// Namespace is the path of its network namespace, Address is there.
	Namespace string
	Address   netip.AddrPort
	// User may do everything, and its server's default user nothing; empty: the password is the default user's.
	User, Password string
	// TLSPort has TLS, with a certificate of Authority; 0: none has.
	TLSPort   uint16
	Authority *pki.Authority
}

// StartRedis starts the server. Close ends it.
func StartRedis(ctx context.Context, c RedisConfig) (*Redis, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, err
	}
	// The password is not an argument, which every process may read.
	config := fmt.Sprintf("bind %s\nport %d\nsave \"\"\nappendonly no\n", c.Address.Addr(), c.Address.Port())
	users := filepath.Join(c.DataDir, "users.acl")
	if c.User == "" {
		config += "requirepass " + c.Password + "\n"
	} else {
		config += "aclfile " + users + "\n"
		acl := fmt.Sprintf("user default off\nuser %s on >%s ~* &* +@all\n", c.User, c.Password)
		if err := os.WriteFile(users, []byte(acl), 0o600); err != nil {
			return nil, err
		}
	}
	if c.TLSPort != 0 {
		lines, err := c.certify()
		if err != nil {
			return nil, err
		}
		config += lines
	}
	file := filepath.Join(c.DataDir, "redis.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(c.LogFile)
	if err != nil {
		return nil, err
	}
	r := &Redis{Address: c.Address.String(), log: log, group: process.New(func(process.Exit) {})}
	r.client = redis.NewClient(&redis.Options{Addr: r.Address, Username: c.User, Password: c.Password, DisableIdentity: true,
		Dialer: dialIn(c.Namespace)})
	err = r.group.Start(ctx, process.Spec{
		Name: "redis", Path: redisServer, NetNS: c.Namespace, Log: log, Restart: true, Env: os.Environ(), Args: []string{file},
		Ready: func(ctx context.Context) error {
			return Poll(ctx, readyTimeout, func(ctx context.Context) error { return r.client.Ping(ctx).Err() })
		},
	})
	if err != nil {
		r.Close(ctx)
		return nil, err
	}
	return r, nil
}

// certify writes the certificate's files, and returns the lines of the configuration.
func (c RedisConfig) certify() (string, error) {
	pair, err := c.Authority.Issue(pki.Party{User: "redis", Addresses: []netip.Addr{c.Address.Addr()}})
	if err != nil {
		return "", err
	}
	at := func(name string) string { return filepath.Join(c.DataDir, name) }
	return fmt.Sprintf("tls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n",
			c.TLSPort, at("cert"), at("key"), at("roots")),
		errors.Join(os.WriteFile(at("roots"), c.Authority.PEM, 0o600), os.WriteFile(at("cert"), pair.Cert, 0o600),
			os.WriteFile(at("key"), pair.Key, 0o600))
}

// Set stores a value.
func (r *Redis) Set(ctx context.Context, key string, value []byte) error {
	if err := r.client.Set(ctx, key, value, 0).Err(); err != nil {
		return fmt.Errorf("storing %s: %w", key, err)
	}
	return nil
}

// Client returns a client of one of its databases, which its user closes.
func (r *Redis) Client(db int) *redis.Client {
	o := *r.client.Options()
	o.DB = db
	return redis.NewClient(&o)
}

// Close ends the server and with it what it holds.
func (r *Redis) Close(ctx context.Context) {
	_ = r.client.Close() // nothing is under way
	r.group.Stop(ctx)
	_ = r.log.Close() // the server's last words are lost, if that
}
