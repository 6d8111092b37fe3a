package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// Address is where a Redis is.
type Address struct {
	HostPort string
	DB       int
	TLS      bool
}

// ParseAddress reads redis://host[:port][/db], or rediss:// for TLS. It takes no
// credentials: addresses are seen in logs and lists of processes.
func ParseAddress(s string) (Address, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, errors.New("not a URL") // the error would repeat all of it
	}
	a := Address{TLS: u.Scheme == "rediss"}
	if u.Scheme != "redis" && !a.TLS || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return Address{}, errors.New("not redis://host:port/db or rediss://host:port/db, without more")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	a.HostPort = net.JoinHostPort(u.Hostname(), port)
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		if a.DB, err = strconv.Atoi(path); err != nil || a.DB < 0 {
			return Address{}, errors.New("its database is not a number")
		}
	}
	return a, nil
}

// Credentials return what to log in with, read anew for each connection; both empty for
// nothing.
type Credentials func() (username, password string, err error)

// Client is a Server.
type Client struct{ redis *redis.Client }

// poolSize bounds the connections of a node: each has one command at a time.
const poolSize = 16

// Connect returns a client, which connects when it is used. The caller has to Close it.
func Connect(a Address, credentials Credentials) *Client {
	o := &redis.Options{
		Addr: a.HostPort, DB: a.DB, PoolSize: poolSize, MaxRetries: 2, ContextTimeoutEnabled: true,
		DialTimeout: commandTimeout, ReadTimeout: commandTimeout, WriteTimeout: commandTimeout,
		CredentialsProviderContext: func(context.Context) (string, string, error) { return credentials() },
	}
	if a.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &Client{redis: redis.NewClient(o)}
}

// Close ends the connections.
func (c *Client) Close() error { return c.redis.Close() }

// Write implements Server.
func (c *Client) Write(ctx context.Context, key string, at int64, p []byte, ttl time.Duration) (existed bool, err error) {
	var had *redis.IntCmd
	_, err = c.redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		had = pipe.Exists(ctx, key)
		pipe.Do(ctx, "SETRANGE", key, at, p)
		pipe.PExpire(ctx, key, ttl)
		return nil
	})
	if err == nil {
		return had.Val() > 0, nil
	}
	if refused(err) {
		return false, fmt.Errorf("%w: %w", buffer.Full("the Redis of the node's input buffer takes no more"), err)
	}
	return false, err
}

// refused tells a server that did not even begin with a transaction: its memory is full, or
// this user may not write.
func refused(err error) bool {
	return strings.HasPrefix(err.Error(), "EXECABORT") || strings.HasPrefix(err.Error(), "OOM") || strings.HasPrefix(err.Error(), "NOPERM")
}

// Read implements Server.
func (c *Client) Read(ctx context.Context, key string, at int64, p []byte) (n int, first byte, err error) {
	if len(p) == 0 {
		return 0, 0, nil
	}
	pipe := c.redis.Pipeline()
	got, begins := pipe.GetRange(ctx, key, at, at+int64(len(p))-1), pipe.GetRange(ctx, key, 0, 0)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, err
	}
	if b := begins.Val(); b != "" {
		first = b[0]
	}
	return copy(p, got.Val()), first, nil
}

// Delete implements Server.
func (c *Client) Delete(ctx context.Context, keys []string) error {
	return c.redis.Unlink(ctx, keys...).Err()
}

// Keys implements Server.
func (c *Client) Keys(ctx context.Context, prefix string, each func(keys []string) error) error {
	const some = 1000 // as many keys as the server looks at in one go
	var cursor uint64
	for {
		keys, next, err := c.redis.Scan(ctx, cursor, escape(prefix)+"*", some).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := each(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// escape takes the meaning off the characters of a pattern.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
