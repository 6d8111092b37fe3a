package testbed

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
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
	Password  string
}

// StartRedis starts the server. Close ends it.
func StartRedis(ctx context.Context, c RedisConfig) (*Redis, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, err
	}
	// The password is not an argument, which every process may read.
	config := fmt.Sprintf("bind %s\nport %d\nsave \"\"\nappendonly no\nrequirepass %s\n", c.Address.Addr(), c.Address.Port(), c.Password)
	file := filepath.Join(c.DataDir, "redis.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(c.LogFile)
	if err != nil {
		return nil, err
	}
	r := &Redis{Address: c.Address.String(), log: log, group: process.New(func(process.Exit) {})}
	r.client = redis.NewClient(&redis.Options{Addr: r.Address, Password: c.Password, DisableIdentity: true,
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

// Set stores a value.
func (r *Redis) Set(ctx context.Context, key string, value []byte) error {
	if err := r.client.Set(ctx, key, value, 0).Err(); err != nil {
		return fmt.Errorf("storing %s: %w", key, err)
	}
	return nil
}

// Close ends the server and with it what it holds.
func (r *Redis) Close(ctx context.Context) {
	_ = r.client.Close() // nothing is under way
	r.group.Stop(ctx)
	_ = r.log.Close() // the server's last words are lost, if that
}
