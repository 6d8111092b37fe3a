package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/buffertest"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/remote"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id       = "00000000000000000000000000000001"
	function = "default/f"
)

// memory is a Server without a network.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	ttls   map[string]time.Duration
	err    error // of each command
}

func (m *memory) Write(_ context.Context, key string, at int64, p []byte, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return false, m.err
	}
	if m.values == nil {
		m.values, m.ttls = map[string][]byte{}, map[string]time.Duration{}
	}
	v, existed := m.values[key]
	if short := int(at) + len(p) - len(v); short > 0 {
		v = append(v, make([]byte, short)...)
	}
	copy(v[at:], p)
	m.values[key], m.ttls[key] = v, ttl
	return existed, nil
}

func (m *memory) Read(_ context.Context, key string, at int64, p []byte) (n int, first byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, 0, m.err
	}
	v := m.values[key]
	if len(v) > 0 {
		first = v[0]
	}
	return copy(p, v[min(at, int64(len(v))):]), first, nil
}

func (m *memory) Delete(_ context.Context, keys []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	for _, key := range keys {
		delete(m.values, key)
	}
	return nil
}

func (m *memory) Keys(_ context.Context, prefix string, each func([]string) error) error {
	m.mu.Lock()
	err := m.err
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(m.values)), func(k string) bool { return !strings.HasPrefix(k, prefix) })
	m.mu.Unlock()
	if err != nil || len(keys) == 0 {
		return err
	}
	return each(keys)
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.values))
}

func (m *memory) lose(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestConforms(t *testing.T) {
	var server *memory
	open := func(*testing.T) buffer.Medium {
		server = &memory{}
		return remote.Open(server, "node", "process", quiet())
	}
	buffertest.Run(t, open, func(*testing.T) int { return len(server.keys()) })
}

func open(t *testing.T, server remote.Server, node, process string) *buffer.Buffer {
	t.Helper()
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "redis", Limit: 10 << 20, Medium: remote.Open(server, node, process, quiet())})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func create(t *testing.T, b *buffer.Buffer, size int64) *buffer.Entry {
	t.Helper()
	e, err := b.Create(id, function, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Release)
	return e
}

// Each chunk lives for a while from its last write on, under a key of this process.
func TestChunksExpire(t *testing.T) {
	server := &memory{}
	e := create(t, open(t, server, "node", "process"), 1<<20)
	if _, err := e.WriteAt(make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if got := server.keys(); len(got) != 2 {
		t.Fatalf("the chunks are %v", got)
	}
	for _, key := range server.keys() {
		if !strings.HasPrefix(key, "headstart:buffer:node:process:"+id+":") || server.ttls[key] != 30*time.Minute {
			t.Errorf("%s lives for %s", key, server.ttls[key])
		}
	}
}

// A process removes what the node's earlier ones have left, and nothing of others.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &memory{}
		others := []string{"headstart:buffer:node-2:old:x:0", "headstart:buffers", "other"}
		for _, key := range append([]string{"headstart:buffer:node:old:x:0", "headstart:buffer:node:older:x:1"}, others...) {
			if _, err := server.Write(t.Context(), key, 0, []byte("x"), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		create(t, open(t, server, "node", "new"), 1).Fail(nil)
		synctest.Wait()
		if got := server.keys(); !slices.Equal(got, others) {
			t.Errorf("left are %v", got)
		}
	})
}

// A server that fails is left alone for a while, in which the buffer counts as full.
func TestServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &memory{}
		b := open(t, server, "node", "process")
		e := create(t, b, 10)
		server.fail(errors.New("refused"))
		if _, err := e.WriteAt([]byte("x"), 0); problem.Of(err).Title != "BufferUnavailable" || !buffer.IsFull(err) {
			t.Errorf("a write gives %v", err)
		}
		if _, err := b.Create(strings.Repeat("2", 32), function, 1); problem.Of(err).Title != "BufferFull" {
			t.Errorf("while it is left alone: %v", err)
		}
		server.fail(nil)
		<-time.After(time.Minute)
		if _, err := e.WriteAt([]byte("0123456789"), 0); err != nil {
			t.Error(err)
		}
		next, err := b.Create(strings.Repeat("2", 32), function, 1)
		if err != nil {
			t.Fatal(err)
		}
		next.Release()
	})
}

// A server without room is a full buffer, for as long as it says so.
func TestServerIsFull(t *testing.T) {
	server := &memory{}
	e := create(t, open(t, server, "node", "process"), 10)
	server.fail(buffer.Full("out of memory"))
	if _, err := e.WriteAt([]byte("x"), 0); problem.Of(err).Title != "BufferFull" {
		t.Errorf("a write gives %v", err)
	}
	server.fail(nil)
	if _, err := e.WriteAt([]byte("0123456789"), 0); err != nil {
		t.Error(err)
	}
}

// A chunk that the server has lost is an error, and never other bytes, also when it is
// written to again.
func TestServerLosesAChunk(t *testing.T) {
	for name, again := range map[string]bool{"read": false, "written": true} {
		t.Run(name, func(t *testing.T) {
			server := &memory{}
			e := create(t, open(t, server, "node", "process"), 10)
			if _, err := e.WriteAt([]byte("01234"), 0); err != nil {
				t.Fatal(err)
			}
			server.lose(server.keys()[0])
			if again {
				if _, err := e.WriteAt([]byte("56789"), 5); problem.Of(err).Title != "BufferUnavailable" {
					t.Errorf("writing gives %v", err)
				}
			}
			r := e.NewReader(t.Context())
			defer r.Close()
			if n, err := r.Read(make([]byte, 10)); n != 0 || problem.Of(err).Title != "BufferUnavailable" {
				t.Errorf("reading gives %d, %v", n, err)
			}
		})
	}
}

// slow is a Server on which writes wait.
type slow struct {
	*memory
	begun, goes chan struct{}
}

func (s *slow) Write(ctx context.Context, key string, at int64, p []byte, ttl time.Duration) (bool, error) {
	close(s.begun)
	<-s.goes
	return s.memory.Write(ctx, key, at, p, ttl)
}

// A write that is under way when the input is let go of leaves nothing in the server.
func TestNothingIsLeftOfAWriteThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slow{&memory{}, make(chan struct{}), make(chan struct{})}
		e, err := open(t, server, "node", "process").Create(id, function, 10)
		if err != nil {
			t.Fatal(err)
		}
		var writer sync.WaitGroup
		writer.Go(func() { _, _ = e.WriteAt([]byte("01234"), 0) }) // it is too late
		<-server.begun
		e.Release()
		synctest.Wait()
		close(server.goes)
		writer.Wait()
		synctest.Wait()
		if left := server.keys(); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// A reader whose request has ended says so, and the server is not blamed.
func TestReaderLeaves(t *testing.T) {
	server := &memory{}
	b := open(t, server, "node", "process")
	e := create(t, b, 2)
	if _, err := e.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := e.NewReader(ctx)
	defer r.Close()
	cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := e.WriteAt([]byte("y"), 1); err != nil {
		t.Error(err)
	}
}

// FuzzParseAddress: what is not an address without credentials is refused, and no error
// repeats it.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"redis://h:6379/1", "rediss://h", "redis://[fd00::b]:1", "redis://u:s3cret@h", "redis://h?x=1", "redis://", "http://h", "h:6379", "redis://h/x", "redis://h/-1", "redis://h:s3cret", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := remote.ParseAddress(s)
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		if strings.Contains(s, "@") || a.DB < 0 || a.HostPort == "" || a.TLS != strings.HasPrefix(strings.ToLower(s), "rediss://") {
			t.Errorf("%q is %+v", s, a)
		}
	})
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]remote.Address{
		"redis://r.example.com":         {HostPort: "r.example.com:6379"},
		"rediss://r.example.com:6380/3": {HostPort: "r.example.com:6380", DB: 3, TLS: true},
		"redis://[fd00::b]:6379/0":      {HostPort: "[fd00::b]:6379"},
	} {
		if got, err := remote.ParseAddress(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
}
