//go:build integration

package redis

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/redistest"
)

// admin is a client that writes to the server.
func admin(t *testing.T, address string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{Addr: address, DisableIdentity: true}
	for _, c := range change {
		c(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func storeAt(t *testing.T, client *redis.Client, cfg Config) sourcetest.Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key := func(ref source.Reference) string { return ref.Bucket + ":" + ref.Key }
	return sourcetest.Store{
		Source: s, Scheme: source.SchemeRedis, Bucket: testSpace, Part: Part, Untyped: true, Close: s.Close,
		Put: func(ref source.Reference, _ string, content []byte) error {
			return client.Set(context.Background(), key(ref), content, 0).Err()
		},
		Delete: func(ref source.Reference) error { return client.Del(context.Background(), key(ref)).Err() },
	}
}

func TestServerConformance(t *testing.T) {
	server := redistest.Start(t, "--requirepass", testSecret)
	client := admin(t, server.Address, func(o *redis.Options) { o.Password = testSecret })
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store {
		secrets := sourcetest.Secrets(t, "cache", 0o600, "password="+testSecret)
		cfg := config(server.Address)
		cfg.Credentials = credentialsOf(secrets)
		store := storeAt(t, client, cfg)
		store.Secret = secretOf(secrets)
		return store
	})
}

func TestServerBehindABadLine(t *testing.T) {
	server := redistest.Start(t)
	client := admin(t, server.Address)
	sourcetest.RunBehindABadLine(t, server.Address, func(t *testing.T, address string) sourcetest.Store {
		return storeAt(t, client, config(address))
	})
}

// A value is as large as Redis takes them, and arrives byte for byte.
func TestServerLargestValue(t *testing.T) {
	server := redistest.Start(t)
	client := admin(t, server.Address)
	ctx := t.Context()
	// 512 MB made on the server: by one byte at the end, and some in between.
	for _, at := range []int64{0, 200<<20 + 17, 512<<20 - 7} {
		if err := client.SetRange(ctx, testSpace+":k", at, fmt.Sprintf("at%d", at%10000)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	store := storeAt(t, client, config(server.Address))
	defer store.Close()
	s := &sourcetest.Sink{}
	if err := store.Source.Fetch(ctx, testRef("k"), "", s.Begin); err != nil {
		t.Fatal(err)
	}
	if s.Object.Size != int64(len(s.Content)) || s.Object.Size < 512<<20-7 {
		t.Errorf("got %d bytes of %+v", len(s.Content), s.Object)
	}
	for _, at := range []int64{0, 200<<20 + 17, 512<<20 - 7} {
		if want := fmt.Sprintf("at%d", at%10000); !bytes.HasPrefix(s.Content[at:], []byte(want)) {
			t.Errorf("at %d is not %s", at, want)
		}
	}
}

// All that changes a value is seen, whatever the command: also one that ends by itself.
func TestServerChanges(t *testing.T) {
	server := redistest.Start(t)
	client := admin(t, server.Address)
	ctx, key := t.Context(), testSpace+":k"
	store := storeAt(t, client, config(server.Address))
	defer store.Close()
	content := bytes.Repeat([]byte("a"), 20*Part)
	for name, change := range map[string]func() error{
		"set":      func() error { return client.Set(ctx, key, bytes.Repeat([]byte("b"), 20*Part), 0).Err() },
		"same":     func() error { return client.Set(ctx, key, content, 0).Err() },
		"append":   func() error { return client.Append(ctx, key, "b").Err() },
		"setrange": func() error { return client.SetRange(ctx, key, 19*Part, "b").Err() },
		"shorter":  func() error { return client.Set(ctx, key, "b", 0).Err() },
		"gone":     func() error { return client.Del(ctx, key).Err() },
		"expired":  func() error { return client.Expire(ctx, key, -time.Second).Err() },
		"renamed":  func() error { return client.Rename(ctx, key, "elsewhere").Err() },
		"type": func() error {
			_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Del(ctx, key); p.HSet(ctx, key, "a", "b"); return nil })
			return err
		},
		"flushed": func() error { return client.FlushAll(ctx).Err() },
	} {
		if err := client.Del(ctx, key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(ctx, key, content, 0).Err(); err != nil {
			t.Fatal(err)
		}
		s := &sourcetest.Sink{OnBegin: change}
		if err := store.Source.Fetch(ctx, testRef("k"), "", s.Begin); problem.Of(err).Title != "InputChanged" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerRefuses(t *testing.T) {
	server := redistest.Start(t, "--requirepass", testSecret, "--databases", "2")
	client := admin(t, server.Address, func(o *redis.Options) { o.Password = testSecret })
	ctx := t.Context()
	if err := client.Do(ctx, "ACL", "SETUSER", "reader", "on", ">"+testSecret, "~"+testSpace+":*", "+@read", "+@transaction", "+@connection").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(ctx, "ACL", "SETUSER", "other", "on", ">"+testSecret, "~other:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(ctx, testSpace+":k", "content", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(ctx, testSpace+":hash", "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]struct {
		change func(*Config)
		key    string
		title  string
	}{
		"the password":      {func(c *Config) { c.Credentials = credentials(t, "password="+testSecret) }, "k", ""},
		"a user who may":    {func(c *Config) { c.Credentials = credentials(t, "username=reader\npassword="+testSecret) }, "k", ""},
		"a user who mayn't": {func(c *Config) { c.Credentials = credentials(t, "username=other\npassword="+testSecret) }, "k", "StoreForbidden"},
		"no password":       {func(*Config) {}, "k", "StoreForbidden"},
		"a wrong one":       {func(c *Config) { c.Credentials = credentials(t, "password=other") }, "k", "StoreForbidden"},
		"an empty secret":   {func(c *Config) { c.Credentials = credentials(t, "") }, "k", "StoreForbidden"},
		"another database":  {func(c *Config) { c.Credentials, c.Database = credentials(t, "password="+testSecret), 1 }, "k", "InputNotFound"},
		"no such database":  {func(c *Config) { c.Credentials, c.Database = credentials(t, "password="+testSecret), 2 }, "k", "StoreUnavailable"},
		"a hash":            {func(c *Config) { c.Credentials = credentials(t, "password="+testSecret) }, "hash", "InputNotFound"},
	} {
		cfg := config(server.Address)
		in.change(&cfg)
		store := storeAt(t, client, cfg)
		for range 2 { // the second time by a line that is kept
			err := store.Source.Fetch(ctx, testRef(in.key), "", (&sourcetest.Sink{}).Begin)
			if in.title == "" && err != nil || in.title != "" && problem.Of(err).Title != in.title {
				t.Errorf("%s: %v", name, err)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, testSecret) {
				t.Errorf("%s: the error tells the secret: %s", name, text)
			}
		}
		store.Close()
	}
}

// A server that restarts loses what watched the value: the fetch under way fails and says
// so, the next one works, also when the lines that were kept are dead.
func TestServerRestarts(t *testing.T) {
	server := redistest.Start(t)
	client := admin(t, server.Address)
	store := storeAt(t, client, config(server.Address))
	defer store.Close()
	content := bytes.Repeat([]byte("0123456789abcdef"), 20*Part/16)
	put := func() {
		if err := store.Put(testRef("k"), "", content); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s := &sourcetest.Sink{OnBegin: func() error { server.Restart(); put(); return nil }}
	if err := store.Source.Fetch(t.Context(), testRef("k"), "", s.Begin); problem.Of(err).Title != "StoreUnavailable" {
		t.Errorf("got %v", err)
	}
	for range 2 {
		s = &sourcetest.Sink{}
		if err := store.Source.Fetch(t.Context(), testRef("k"), "", s.Begin); err != nil || !bytes.Equal(s.Content, content) {
			t.Errorf("after the restart: %v", err)
		}
		server.Restart()
		put()
	}
	server.Stop()
	if err := store.Source.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin); problem.Of(err).Title != "StoreUnavailable" {
		t.Errorf("without a server: %v", err)
	}
}

func TestServerWithTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := porttest.Address(t)
	_, port, _ := net.SplitHostPort(address)
	server := redistest.Start(t, "--tls-port", port, "--tls-cert-file", dir+"/cert", "--tls-key-file", dir+"/key", "--tls-auth-clients", "no")
	client := admin(t, server.Address)
	content := bytes.Repeat([]byte("0123456789abcdef"), 3*Part/16)
	if err := client.Set(t.Context(), testSpace+":k", content, 0).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := config(address)
	cfg.TLS = true
	untrusted := storeAt(t, client, cfg)
	defer untrusted.Close()
	err = untrusted.Source.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin)
	if p := problem.Of(err); p.Title != "StoreUnavailable" || !strings.Contains(p.Detail, "not trusted") {
		t.Errorf("a certificate of nobody's: %v", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	cfg.roots = x509.NewCertPool()
	cfg.roots.AddCert(certificate)
	trusted := storeAt(t, client, cfg)
	defer trusted.Close()
	s := &sourcetest.Sink{}
	if err := trusted.Source.Fetch(t.Context(), testRef("k"), "", s.Begin); err != nil || !bytes.Equal(s.Content, content) {
		t.Errorf("got %d bytes, %v", len(s.Content), err)
	}
}
