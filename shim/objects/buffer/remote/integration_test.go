//go:build integration

package remote_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/buffertest"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/remote"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/redistest"
)

// password is the server's.
const password = "s3cret"

// server is a redis-server, and its operator's way in.
type server struct {
	*redistest.Server
	address remote.Address
	admin   *redis.Client
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{Server: redistest.Start(t, "--requirepass", password)}
	s.address = remote.Address{HostPort: s.Address, DB: 3}
	s.admin = redis.NewClient(&redis.Options{Addr: s.Address, Password: password, DB: 3})
	t.Cleanup(func() {
		if err := s.admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *server) connect(t *testing.T) *remote.Client {
	t.Helper()
	// All that docs/operations/nodes.md asks for.
	rights := "~headstart:buffer:* +setrange +getrange +exists +pexpire +unlink +scan +multi +exec +hello +auth +select"
	set := []any{"ACL", "SETUSER", "buffer", "on", ">" + password}
	for right := range strings.FieldsSeq(rights) {
		set = append(set, right)
	}
	if err := s.admin.Do(t.Context(), set...).Err(); err != nil {
		t.Fatal(err)
	}
	c := remote.Connect(s.address, func() (string, string, error) { return "buffer", password, nil })
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (s *server) keys(t *testing.T) []string {
	t.Helper()
	keys, err := s.admin.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestRedisConforms(t *testing.T) {
	s := serve(t)
	open := func(t *testing.T) buffer.Medium { return remote.Open(s.connect(t), "node", "process", quiet()) }
	buffertest.Run(t, open, func(t *testing.T) int { return len(s.keys(t)) })
}

// What a killed daemon left is gone with the next one's start, and expires without it.
func TestRedisIsSwept(t *testing.T) {
	s := serve(t)
	killed := buffer.New(buffer.Quota{}, buffer.Tier{Name: "redis", Limit: 10 << 20, Medium: remote.Open(s.connect(t), "node", "killed", quiet())})
	e, err := killed.Create(id, function, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.WriteAt(make([]byte, 3<<20), 0); err != nil {
		t.Fatal(err)
	}
	for _, key := range s.keys(t) {
		if ttl := s.admin.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 30*time.Minute {
			t.Errorf("%s lives for %s", key, ttl)
		}
	}
	next := open(t, s.connect(t), "node", "next")
	for len(s.keys(t)) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("what was left stays")
		}
	}
	if _, err := e.WriteAt([]byte("x"), 0); problem.Of(err).Title != "BufferUnavailable" {
		t.Errorf("a part that is gone is written to: %v", err)
	}
	e.Release()
	if err := errors.Join(killed.Close(), next.Close()); err != nil {
		t.Error(err)
	}
}

// A server that has as much as its operator allows is full, and takes more when there is room.
func TestRedisIsFull(t *testing.T) {
	s := serve(t)
	b := open(t, s.connect(t), "node", "process")
	e, err := b.Create(id, function, buffer.Unknown)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := e.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := e.WriteAt(content, int64(len(content))); problem.Of(err).Title != "BufferFull" || n != 0 {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	r := e.NewReader(t.Context())
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content) {
		t.Errorf("what was there before is %d bytes, %v", len(got), err)
	}
}

// A server that dies is an error for those who have something there, and no room for others.
func TestRedisDies(t *testing.T) {
	s := serve(t)
	b := open(t, s.connect(t), "node", "process")
	e, err := b.Create(id, function, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	if _, err := e.WriteAt([]byte("01234"), 0); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := e.WriteAt([]byte("56789"), 5); problem.Of(err).Title != "BufferUnavailable" {
		t.Errorf("writing gives %v", err)
	}
	r := e.NewReader(t.Context())
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); problem.Of(err).Title != "BufferUnavailable" {
		t.Errorf("reading gives %v", err)
	}
	if _, err := b.Create(strings.Repeat("2", 32), function, 1); !buffer.IsFull(err) {
		t.Errorf("creating gives %v", err)
	}
}

// Without its password, nothing is buffered there.
func TestRedisRefuses(t *testing.T) {
	s := serve(t)
	c := remote.Connect(s.address, func() (string, string, error) { return "", "", nil })
	defer c.Close()
	b := open(t, c, "node", "process")
	e, err := b.Create(id, function, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	if _, err := e.WriteAt([]byte("x"), 0); !buffer.IsFull(err) || strings.Contains(err.Error(), password) {
		t.Errorf("writing gives %v", err)
	}
}
