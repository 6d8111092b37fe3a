package redis

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	testSpace  = "jobs"
	testSecret = "hunter2-a-secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(address string) Config {
	return Config{Store: "cache", Address: address, Buckets: []string{testSpace}}
}

func testRef(key string) source.Reference {
	return source.Reference{Scheme: source.SchemeRedis, Bucket: testSpace, Key: key}
}

// credentials are those of the file's content.
func credentials(t *testing.T, text string) func(context.Context) (secret.Secret, error) {
	t.Helper()
	return credentialsOf(sourcetest.Secrets(t, "cache", 0o600, text))
}

func credentialsOf(secrets *os.Root) func(context.Context) (secret.Secret, error) {
	return func(context.Context) (secret.Secret, error) { return LoadCredentials(secrets, "cache") }
}

// secretOf writes the server's password, or another one, as sourcetest.Store has it.
func secretOf(secrets *os.Root) func(right bool) error {
	return func(right bool) error {
		password := testSecret
		if !right {
			password = "another"
		}
		return secrets.WriteFile("cache", []byte("password="+password), 0o600)
	}
}

// open returns a source of the server, and a function that ends both.
func open(t *testing.T, f *fake, cfg Config) (*Source, func()) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.lines.dialer = f.dial
	return s, func() { s.Close(); f.close() }
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store {
		f := newFake()
		f.password = testSecret
		secrets := sourcetest.Secrets(t, "cache", 0o600, "password="+testSecret)
		cfg := config("redis.test:6379")
		cfg.Credentials = credentialsOf(secrets)
		s, end := open(t, f, cfg)
		return sourcetest.Store{
			Source: s, Scheme: source.SchemeRedis, Bucket: testSpace, Part: Part, Untyped: true, Close: end, Secret: secretOf(secrets),
			Put: func(ref source.Reference, _ string, content []byte) error {
				f.set(ref.Bucket+":"+ref.Key, string(content))
				return nil
			},
			Delete: func(ref source.Reference) error { f.delete(ref.Bucket + ":" + ref.Key); return nil },
		}
	})
}

// A small value is one question.
func TestASmallValueIsOneRoundTrip(t *testing.T) {
	f := newFake()
	s, end := open(t, f, config("redis.test:6379"))
	defer end()
	f.set("jobs:k", strings.Repeat("x", head-1))
	for range 2 {
		if err := s.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.said(); got != "UNWATCH WATCH EXISTS STRLEN GETRANGE UNWATCH WATCH EXISTS STRLEN GETRANGE" {
		t.Errorf("the server was told %s", got)
	}
}

// What goes wrong once is asked for again.
func TestFetchGoesOn(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 3*Part/16)
	for name, fault := range map[string]string{"loading": "-LOADING Redis is loading the dataset in memory", "clients": "-ERR max number of clients reached", "cut": cut, "stall": silence} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var faults atomic.Int32
				f.before = func(command []string) string {
					// Of what is asked at once each has an answer of its own: GETRANGE alone.
					if command[0] == "GETRANGE" && faults.Add(1)%2 == 1 && faults.Load() < 6 {
						return fault
					}
					return ""
				}
				s, end := open(t, f, config("redis.test:6379"))
				defer end()
				f.set("jobs:k", content)
				sink := &sourcetest.Sink{}
				if err := s.Fetch(t.Context(), testRef("k"), "", sink.Begin); err != nil {
					t.Fatal(err)
				}
				if string(sink.Content) != content {
					t.Error("the content is another")
				}
			})
		})
	}
}

// What stays wrong is told, within a bounded time.
func TestFetchFails(t *testing.T) {
	const atOnce, retried, stalled = 0, ranged.Away, ranged.Patience
	for name, in := range map[string]struct {
		command, answer string
		title           string
		status          int
		says            string
		within          time.Duration
	}{
		"no password":    {"WATCH", "-NOAUTH Authentication required.", "StoreForbidden", http.StatusBadGateway, "NOAUTH", atOnce},
		"no permission":  {"STRLEN", "-NOPERM this user has no permissions " + testSecret, "StoreForbidden", http.StatusBadGateway, "NOPERM", atOnce},
		"protected mode": {"WATCH", "-DENIED Redis is running in protected mode", "StoreForbidden", http.StatusBadGateway, "DENIED", atOnce},
		"a hash":         {"STRLEN", "-WRONGTYPE Operation against a key", "InputNotFound", http.StatusNotFound, "no object", atOnce},
		"a cluster":      {"STRLEN", "-MOVED 3999 127.0.0.1:6381", "StoreUnavailable", http.StatusBadGateway, "MOVED", atOnce},
		"another error":  {"GETRANGE", "-ERR you sent " + testSecret, "StoreUnavailable", http.StatusBadGateway, `"ERR"`, atOnce},
		"no Redis":       {"UNWATCH", "HTTP/1.1 400 Bad Request", "StoreUnavailable", http.StatusBadGateway, "connection failed", retried},
		"loading":        {"STRLEN", "-LOADING Redis is loading", "StoreUnavailable", http.StatusBadGateway, "LOADING", retried},
		"reset":          {"STRLEN", cut, "StoreUnavailable", http.StatusBadGateway, "connection failed", retried},
		"stalled":        {"STRLEN", silence, "StoreTimeout", http.StatusGatewayTimeout, "in time", stalled},
		"watch lost":     {"EXEC", cut, "StoreUnavailable", http.StatusBadGateway, "watched", atOnce},
		"touched":        {"EXEC", "$-1", "InputChanged", http.StatusBadGateway, "changed", atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.before = func(command []string) string {
					if command[0] == in.command {
						return in.answer
					}
					return ""
				}
				s, end := open(t, f, config("redis.test:6379"))
				defer end()
				f.set("jobs:k", strings.Repeat("x", 2*Part))
				begun := time.Now()
				err := s.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin)
				if took := time.Since(begun); took > in.within {
					t.Errorf("it took %v, want at most %v", took, in.within)
				}
				if p := problem.Of(err); p.Title != in.title || p.Status != in.status || !strings.Contains(p.Detail, in.says) {
					t.Errorf("got %v", err)
				}
				if strings.Contains(problem.Of(err).Detail, testSecret) {
					t.Errorf("the error repeats what the store says: %v", err)
				}
			})
		})
	}
}

// A stalled store does not hold up a caller who gives up.
func TestFetchReturnsWhenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func([]string) string { return silence }
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := s.Fetch(ctx, testRef("k"), "", (&sourcetest.Sink{}).Begin)
		if problem.Of(err).Title != "StoreTimeout" || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

// Whether another namespace has a value fetched changes nothing of what one sees, nor of whether it shares
// its own fetches.
func TestAttackAnotherNamespaceSeesNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("jobs:42", strings.Repeat("x", 4*head))
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		victim, attacker := fair.For(t.Context(), "victim/f"), fair.For(t.Context(), "attacker/f")
		err := s.Fetch(victim, testRef("42"), "", func(own source.Object) (io.WriterAt, error) {
			err := s.Fetch(attacker, testRef("42"), "", func(other source.Object) (io.WriterAt, error) {
				if other.Version == own.Version {
					t.Error("the attacker sees the victim's fetch")
				}
				var unchanged *source.Unchanged
				if err := s.Fetch(victim, testRef("42"), own.Version, (&sourcetest.Sink{}).Begin); !errors.As(err, &unchanged) {
					t.Errorf("with another namespace's fetch the victim's object seems another: %v", err)
				}
				return (&sourcetest.Sink{}).Begin(own)
			})
			if err != nil {
				t.Error(err)
			}
			return (&sourcetest.Sink{}).Begin(own)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Lines that nobody uses any more are given up.
func TestUnusedLinesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		f.set("jobs:k", "x")
		for range 2 {
			if err := s.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * ranged.Idle)
			synctest.Wait()
			if n := f.connected(); n != 0 {
				t.Errorf("%d connections are open", n)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no port":    func(c *Config) { c.Address = "redis.test" },
		"no address": func(c *Config) { c.Address = "" },
		"no buckets": func(c *Config) { c.Buckets = nil },
	} {
		cfg := config("redis.test:6379")
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Error(name)
		}
	}
}
