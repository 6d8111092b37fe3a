package inputs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// withDirectories is a configuration in directories of its own.
func withDirectories(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	return Config{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), SecretsDir: filepath.Join(dir, "secrets"),
		Disk: 1 << 20, RedisLimit: 1 << 20, Quota: buffer.Quota{Entries: 3}, Log: slog.New(slog.DiscardHandler)}
}

func inputsOf(t *testing.T, c Config) *Inputs {
	t.Helper()
	i, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// onTmpfs moves the run directory to where Linux has a tmpfs.
func onTmpfs(t *testing.T, c Config) Config {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "headstart-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c.RunDir, c.Memory = dir, 1<<20
	return c
}

func tierNames(i *Inputs) (names []string) {
	for _, tier := range i.Tiers() {
		names = append(names, tier.Name)
	}
	return names
}

// The flags say which tiers there are; without any it is the disk.
func TestTiersOfTheFlags(t *testing.T) {
	disk := withDirectories(t)
	if got := tierNames(inputsOf(t, disk)); !slices.Equal(got, []string{"disk"}) {
		t.Errorf("by default: %v", got)
	}
	all := onTmpfs(t, withDirectories(t))
	all.Redis = "redis://127.0.0.1:1" // nobody is there, which is no reason not to start
	i := inputsOf(t, all)
	if got := tierNames(i); !slices.Equal(got, []string{"memory", "disk", "redis"}) || i.Memory == nil {
		t.Errorf("with all: %v, %v", got, i.Memory)
	}
}

// An input takes a quarter of the memory at most, and a function three quarters of all.
func TestShares(t *testing.T) {
	i := inputsOf(t, onTmpfs(t, withDirectories(t)))
	small, err := i.Create(strings.Repeat("1", 32), "default/f", 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	large, err := i.Create(strings.Repeat("2", 32), "default/f", 1<<18+1)
	if err != nil {
		t.Fatal(err)
	}
	if tiers := i.Tiers(); tiers[0].Used != 1<<18 || tiers[1].Used != 1<<18+1 {
		t.Errorf("the tiers have %+v", tiers)
	}
	if _, err := i.Create(
		strings.Repeat("3", 32), "default/f", 1<<20-1<<18,
	); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("what no tier has room for: %v", err)
	}
	for n := range 2 {
		e, err := i.Create(fmt.Sprintf("%032x", n), "default/g", 1<<18)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Release()
	}
	small.Release()
	large.Release()
}

// A buffer has as many inputs of one function as the flag says.
func TestInputsOfAFunction(t *testing.T) {
	i := inputsOf(t, withDirectories(t))
	for n := range 4 {
		e, err := i.Create(fmt.Sprintf("%032x", n), "default/f", 0)
		if n == 3 {
			if !buffer.IsFull(err) {
				t.Errorf("a fourth one gives %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer e.Release()
	}
}

// A node's name in the Redis stays, and is that of no other one, nor of the daemon that it
// has beside it for a while.
func TestRedisNames(t *testing.T) {
	c, other := withDirectories(t), withDirectories(t)
	seen := map[string]bool{}
	for _, at := range []struct {
		c    Config
		slot string
	}{{c, "buffer"}, {c, "buffer-2"}, {other, "buffer"}} {
		if err := os.MkdirAll(at.c.state(at.slot), 0o700); err != nil {
			t.Fatal(err)
		}
		name, err := at.c.redisName(at.slot)
		if err != nil || seen[name] {
			t.Errorf("%s: %v", name, err)
		}
		seen[name] = true
		if again, err := at.c.redisName(at.slot); again != name || err != nil {
			t.Errorf("it was %s, and is %s, %v", name, again, err)
		}
	}
	// One that a crash left half-written is another one's.
	if err := os.WriteFile(filepath.Join(c.state("buffer"), "redis-name"), []byte("*"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := c.redisName("buffer"); err != nil || strings.Contains(name, "*") {
		t.Errorf("it is %q, %v", name, err)
	}
}

// What a killed daemon left in memory and on disk goes with the next one's start, also in
// the place that only an update uses, and when there is to be nothing in memory any more.
func TestInputsAreSwept(t *testing.T) {
	c := onTmpfs(t, withDirectories(t))
	c.Shared = true
	left := strings.Repeat("a", 32)
	for _, dir := range []string{c.memory("buffer"), c.memory("buffer-2"), c.state("buffer"), c.state("buffer-2")} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, left), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	i, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{c.memory("buffer"), c.memory("buffer-2"), c.state("buffer"), c.state("buffer-2")} {
		if _, err := os.Stat(filepath.Join(dir, left)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	second := inputsOf(t, c)
	if i.Succeeds || !second.Succeeds {
		t.Errorf("the first one succeeds another: %v, and the second %v", i.Succeeds, second.Succeeds)
	}
	if _, err := Open(c); !errors.Is(err, buffer.ErrInUse) {
		t.Errorf("a third one gives %v", err)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	c.Memory = 0
	if err := inputsOf(t, c).Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.memory("")); err != nil {
		t.Errorf("a daemon that succeeds another takes its memory: %v", err)
	}
}

func TestNoMemoryAnyMore(t *testing.T) {
	c := onTmpfs(t, withDirectories(t))
	if err := inputsOf(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = 0
	c.StateDir += "-2"
	if i := inputsOf(t, c); i.Memory != nil || len(i.Tiers()) != 1 {
		t.Errorf("it has %v", i.Tiers())
	}
	if _, err := os.Stat(c.memory("")); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}

// A secret is read when it is needed; what is wrong with it is said without it.
func TestRedisCredentials(t *testing.T) {
	c := withDirectories(t)
	if u, p, err := c.redisCredentials(); u != "" || p != "" || err != nil {
		t.Errorf("without a secret: %q, %v", u, err)
	}
	c.RedisSecret = "redis"
	if _, _, err := c.redisCredentials(); err == nil {
		t.Error("a secret that is not there is no error")
	}
	if err := errors.Join(
		os.Mkdir(c.SecretsDir, 0o700),
		os.WriteFile(filepath.Join(c.SecretsDir, "redis"), []byte("username = me\npassword = s3cret\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if u, p, err := c.redisCredentials(); u != "me" || p != "s3cret" || err != nil {
		t.Errorf("got %q, %v", u, err)
	}
}

func TestBufferMetrics(t *testing.T) {
	i := inputsOf(t, onTmpfs(t, withDirectories(t)))
	e, err := i.Create(strings.Repeat("1", 32), "default/f", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	r := prometheus.NewRegistry()
	r.MustRegister(buffer.NewCollector(i.Buffer))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got = append(
				got, fmt.Sprintf("%s{%s} %v", f.GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()),
			)
		}
	}
	want := []string{"headstart_buffer_bytes{disk} 0", "headstart_buffer_bytes{memory} 10", "headstart_buffer_inputs{disk} 0", "headstart_buffer_inputs{memory} 1",
		"headstart_buffer_limit_bytes{disk} 1.048576e+06", "headstart_buffer_limit_bytes{memory} 1.048576e+06",
		"headstart_cache_bytes{disk} 0", "headstart_cache_bytes{memory} 0", "headstart_cache_objects{disk} 0", "headstart_cache_objects{memory} 0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
