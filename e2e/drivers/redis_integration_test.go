//go:build integration

package drivers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/session"
)

// startRedis starts a server with TLS, on which nobody is let in but app and eve.
func startRedis(t *testing.T, args ...string) (*redistest.Server, session.Dial, session.Redis) {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	secured := porttest.Address(t)
	address := netip.MustParseAddrPort(secured)
	pair, err := authority.Issue(pki.Party{User: "redis", Addresses: []netip.Addr{address.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	const rights = " ~* &* +@all\n"
	for name, content := range map[string][]byte{"roots": authority.PEM, "cert": pair.Cert, "key": pair.Key,
		"acl": []byte("user default off\nuser app on >" + password + rights + "user eve on >eves-secret" + rights)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := redistest.Start(t, append([]string{"--aclfile", dir + "/acl", "--tls-port", fmt.Sprint(address.Port()),
		"--tls-cert-file", dir + "/cert", "--tls-key-file", dir + "/key", "--tls-ca-cert-file", dir + "/roots",
		"--tls-auth-clients", "no"}, args...)...)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	return server, dialer(secured), session.Redis{Name: "cache", User: "app", Password: password,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: address.Addr().String()}}
}

// byGoRedis asks who the session is.
func byGoRedis(t *testing.T, path, name string, change func(*redis.Options)) (string, error) {
	o := &redis.Options{Network: "unix", Addr: path, DB: 2, ClientName: name, MaxRetries: -1}
	if change != nil {
		change(o)
	}
	c := redis.NewClient(o)
	who, err := c.Do(t.Context(), "ACL", "WHOAMI").Text()
	if err != nil {
		return "", errors.Join(err, c.Close())
	}
	got, err := c.ClientGetName(t.Context()).Result()
	info, unknown := c.ClientInfo(t.Context()).Result()
	if err := errors.Join(err, unknown, c.Close()); err != nil {
		return "", err
	}
	return fmt.Sprint(who, " ", info.DB, " ", got), nil
}

// Each driver works as it is, the second time with a session that waited for it. What they give as a password is not
// needed.
func TestRedisDrivers(t *testing.T) {
	_, dial, r := startRedis(t)
	goRedis := func(name string, change func(*redis.Options)) func(*testing.T, string) (string, error) {
		return func(t *testing.T, path string) (string, error) { return byGoRedis(t, path, name, change) }
	}
	for driver, run := range map[string]func(t *testing.T, path string) (string, error){
		"redis-cli": func(t *testing.T, path string) (string, error) {
			cmd := exec.CommandContext(t.Context(), "redis-cli", "-s", path, "-n", "2", "-3")
			cmd.Stdin = strings.NewReader("client setname redis-cli\nacl whoami\nclient getname\n")
			said, err := cmd.CombinedOutput()
			lines := strings.Fields(string(said))
			if len(lines) != 3 {
				return string(said), err
			}
			return lines[1] + " 2 " + lines[2], err
		},
		"go-redis": goRedis("go-redis", nil),
		"go-redis-2": goRedis("go-redis-2", func(o *redis.Options) {
			o.Protocol, o.DisableIdentity = 2, true
		}),
		"go-redis-password": goRedis("go-redis-password", func(o *redis.Options) { o.Password = "not the server's" }),
		"go-redis-user": goRedis("go-redis-user", func(o *redis.Options) {
			o.Username, o.Password = "app", "not the server's"
		}),
		"redis-py":   by("redis-py"),
		"redis-py-3": by("redis-py-3"),
		"ioredis":    by("ioredis"),
	} {
		t.Run(driver, func(t *testing.T) {
			path := socket(t, "redis.sock")
			f := listen(t, path, r, dial)
			for i := range 3 {
				said, err := run(t, path)
				if want := "app 2 " + driver; said != want || err != nil {
					t.Fatalf("%q, %v", said, err)
				}
				if taken, fresh := f.counts(); taken+fresh != 1 || fresh > 0 && i > 0 {
					t.Errorf("time %d: %d sessions that waited, %d fresh ones, start %q", i, taken, fresh, f.Last())
				}
				f.fill()
			}
			t.Logf("start %q", f.Last())
		})
	}
}

// Drivers that differ get what they ask for, after one another and with the other's session waiting.
func TestRedisMixed(t *testing.T) {
	_, dial, r := startRedis(t)
	path := socket(t, "redis.sock")
	f := listen(t, path, r, dial)
	for i := range 12 {
		f.fill()
		name, db, protocol := fmt.Sprint("n", i%3), i%2, 2+i%2
		said, err := byGoRedis(t, path, name, func(o *redis.Options) { o.DB, o.Protocol = db, protocol })
		if want := fmt.Sprint("app ", db, " ", name); said != want || err != nil {
			t.Errorf("%q, not %q: %v", said, want, err)
		}
	}
}

// Another user is who it says, by its own password only.
func TestRedisAnotherUser(t *testing.T) {
	_, dial, r := startRedis(t)
	path := socket(t, "redis.sock")
	f := listen(t, path, r, dial)
	f.fill()
	eve := func(password string) func(*redis.Options) {
		return func(o *redis.Options) { o.Username, o.Password = "eve", password }
	}
	if said, err := byGoRedis(t, path, "n", eve("eves-secret")); said != "eve 2 n" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	if said, err := byGoRedis(t, path, "n", eve("wrong")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("%q, %v", said, err)
	}
	if taken, fresh := f.counts(); taken+fresh > 0 {
		t.Errorf("%d sessions of the destination's user that waited, %d fresh ones", taken, fresh)
	}
}

// A client that speaks TLS does so with the server.
func TestRedisEncrypted(t *testing.T) {
	_, dial, r := startRedis(t)
	path := socket(t, "redis.sock")
	listen(t, path, r, dial)
	said, err := byGoRedis(t, path, "n", func(o *redis.Options) {
		o.TLSConfig, o.Username, o.Password = r.TLS, "eve", "eves-secret"
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&tls.Dialer{Config: r.TLS}).DialContext(ctx, "unix", path)
		}
	})
	if said != "eve 2 n" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
}

func TestRedisRefuses(t *testing.T) {
	server, dial, r := startRedis(t, "--maxclients", "2")
	wrong := r
	wrong.Password = "not-the-one"
	path := socket(t, "redis.sock")
	listen(t, path, wrong, dial)
	if said, err := byGoRedis(t, path, "n", nil); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("%q, %v", said, err)
	}
	var refused *session.Refusal
	none := session.Redis{Name: "cache"}
	if s, err := none.Open(t.Context(), dialer(server.Address), ""); !errors.As(err, &refused) || !refused.Denied() {
		t.Errorf("%v, %v", s, err)
	}
	plain := r
	plain.TLS = nil
	var open []*session.Session
	for {
		s, err := plain.Open(t.Context(), dialer(server.Address), "")
		if errors.As(err, &refused) {
			if !refused.Full() || refused.Denied() {
				t.Errorf("%v", err)
			}
			break
		}
		if err != nil || len(open) > 2 {
			t.Fatal(len(open), err)
		}
		open = append(open, s)
	}
	for _, s := range open {
		s.Conn.Close()
	}
	full := func(ctx context.Context) error {
		s, err := r.Open(ctx, dial, "")
		if err == nil {
			s.Conn.Close()
		}
		return err
	}
	if err := testbed.Poll(t.Context(), limit, full); err != nil {
		t.Error(err)
	}
	unknown := r
	unknown.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: r.TLS.RootCAs, ServerName: "another.example"}
	if s, err := unknown.Open(t.Context(), dial, ""); err == nil {
		t.Error("the server's name is not verified: ", s)
	}
	server.Stop()
	if s, err := r.Open(t.Context(), dial, ""); err == nil {
		t.Error("there is no server: ", s)
	}
}

func TestRedisTime(t *testing.T) {
	_, dial, r := startRedis(t)
	path := socket(t, "redis.sock")
	f := listen(t, path, r, dial)
	for range 51 {
		f.fill()
		if _, err := byGoRedis(t, path, "n", nil); err != nil {
			t.Fatal(err)
		}
	}
	f.end()
	took := f.took[1:]
	slices.Sort(took)
	median, p95 := took[len(took)/2], took[len(took)*95/100]
	t.Logf("from the connection to the end of the start-up: %v (median), %v (p95)", median, p95)
	if taken, fresh := f.counts(); fresh > 1 {
		t.Errorf("%d sessions that waited, %d fresh ones", taken, fresh)
	}
}
