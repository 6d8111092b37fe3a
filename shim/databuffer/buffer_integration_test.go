//go:build integration

package databuffer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/databuffer"
	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is many times what anything here takes.
const patience = 30 * time.Second

// rig is a buffer between a store and programs.
type rig struct {
	*databuffer.Buffer
	t       *testing.T
	address string
	outside *redis.Client // another user of the store
	store   *databuffer.Store
	ctx     context.Context // of what passes
	passing sync.WaitGroup

	mu      sync.Mutex
	current map[string]*attempt.Attempt
	waiting chan string // instances that wait for a turn
	works   map[string]int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, address: redistest.Start(t).Address, current: map[string]*attempt.Attempt{}, waiting: make(chan string, 64), works: map[string]int{}}
	var end context.CancelFunc
	r.ctx, end = context.WithCancel(context.Background())
	r.store = databuffer.NewStore("sessions", r.Dial)
	r.outside = redis.NewClient(&redis.Options{Addr: r.address, Protocol: 2})
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	r.Buffer = databuffer.New(databuffer.Config{Current: r.attempt, Turn: r.turn, Works: r.worked, Dir: dir + "/redis",
		Metrics: databuffer.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		end()
		r.passing.Wait()
		r.store.Close()
		r.Close()
		_ = r.outside.Close()
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *rig) attempt(instance string) *attempt.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.current[instance]; a != nil && !a.InTurn() {
		return a
	}
	return nil
}

func (r *rig) turn(ctx context.Context, instance string, until <-chan struct{}) error {
	a := r.attempt(instance)
	if a == nil {
		return nil
	}
	r.waiting <- instance
	select {
	case <-a.Turn():
		return nil
	case <-a.Squashed():
		return attempt.ErrSquashed
	case <-until:
		return nil
	case <-ctx.Done():
		a.Squash()
		return ctx.Err()
	}
}

// commit has an attempt's effect count.
func commit(ctx context.Context, a *attempt.Attempt) error {
	_, err := together(ctx, a)
	return err
}

// together has attempts' effects count in one step, as far as they do.
func together(ctx context.Context, all ...*attempt.Attempt) (count int, err error) {
	count, _, err = attempt.Commit(ctx, all, make([]*attempt.Note, len(all)))
	return count, err
}

// worked hears that an instance does something that others may see.
func (r *rig) worked(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.works[instance]++
}

// begin has an instance work on an attempt.
func (r *rig) begin(instance string) *attempt.Attempt { return r.gives(instance, attempt.New()) }

// gives has an instance work on an attempt.
func (r *rig) gives(instance string, a *attempt.Attempt) *attempt.Attempt {
	a.Begin(func() {})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current[instance] = a
	return a
}

// answers says that a program has answered.
func answers(a *attempt.Attempt) {
	a.Answered()
	a.Ended()
}

// line has the attempts of a run in their order.
type line struct {
	*attempt.Line
	of []*attempt.Attempt
}

func (l *line) next(task string) *attempt.Attempt {
	l.of = append(slices.Clone(l.of), l.New(task))
	l.Order(l.of)
	return l.of[len(l.of)-1]
}

// dial is a connection of an instance's program, which passes the buffer.
func (r *rig) dial(instance string) net.Conn {
	r.t.Helper()
	c, err := r.connection(instance)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) connection(instance string) (net.Conn, error) {
	l, err := net.Listen("unix", fmt.Sprintf("@headstart-databuffer-%d", rand.Uint64()))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	theirs, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return nil, err
	}
	own, err := l.Accept()
	if err != nil {
		return nil, err
	}
	r.passing.Go(func() {
		defer own.Close()
		s, err := session.Redis{}.Begin(r.ctx, own, r)
		if err == nil && s != nil {
			r.Pass(r.ctx, databuffer.Session{Instance: instance, Unread: s.Unread, Protocol: s.Version, Client: own, Server: s.Conn, Store: r.store})
		}
	})
	return theirs, nil
}

// program is an instance's client.
func (r *rig) program(instance string, protocol int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "store", Protocol: protocol, DisableIdentity: true, MaxRetries: -1, PoolSize: 4, ReadTimeout: patience,
		WriteTimeout: patience, Dialer: func(context.Context, string, string) (net.Conn, error) { return r.connection(instance) }})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Last implements session.Sessions, as do Take and Dial.
func (r *rig) Last() session.Start { return "" }

func (r *rig) Take(ctx context.Context, s session.Start) (*session.Session, error) {
	return session.Redis{}.Open(ctx, r.Dial, s)
}

func (r *rig) Dial(context.Context) (net.Conn, error) { return net.Dial("tcp", r.address) }

// ready has the engine be there.
func (r *rig) ready() {
	r.t.Helper()
	p := r.program("warm-up", 2)
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		a := r.begin("warm-up")
		done := make(chan error, 1)
		go func() { done <- p.Get(context.Background(), "warm").Err() }()
		select {
		case err := <-done:
			if !errors.Is(err, redis.Nil) {
				r.t.Fatal(err)
			}
			a.Squash()
			return
		case <-r.waiting:
			a.Squash()
			<-done
		}
		if time.Now().After(late) {
			r.t.Fatal("the engine is not there")
		}
	}
}

// all is what the store holds.
func (r *rig) all() map[string]string {
	r.t.Helper()
	ctx, all := r.t.Context(), map[string]string{}
	names, err := r.outside.Keys(ctx, "*").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		dump, err := r.outside.Dump(ctx, name).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		all[name] = dump
	}
	return all
}

// In its turn, a program has its store.
func TestWhatIsInItsTurnPasses(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("version ", protocol), func(t *testing.T) {
			r, ctx := newRig(t), t.Context()
			p := r.program("a", protocol)
			big := strings.Repeat("x", 3<<20)
			if err := p.Set(ctx, "big", big, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if got, err := p.Get(ctx, "big").Result(); err != nil || got != big {
				t.Errorf("%d bytes come back: %v", len(got), err)
			}
			var last *redis.IntCmd
			if _, err := p.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for range 1000 {
					last = pipe.Incr(ctx, "n")
				}
				return nil
			}); err != nil || last.Val() != 1000 {
				t.Errorf("%d, %v", last.Val(), err)
			}
			if _, err := p.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.HSet(ctx, "h", "f", 1, "g", 2).Err() }); err != nil {
				t.Error(err)
			}
			if got, err := p.HGetAll(ctx, "h").Result(); err != nil || len(got) != 2 {
				t.Error(got, err)
			}
			if got, err := p.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"n"}).Text(); err != nil || got != "1000" {
				t.Error(got, err)
			}
			sub := p.Subscribe(ctx, "news")
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			r.outside.Publish(ctx, "news", "hello")
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
				t.Error(m, err)
			}
			if err := p.Do(ctx, "NONSENSE").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
				t.Error(err)
			}
		})
	}
}

// What a program does to its store is told from what its client does by itself.
func TestWhatAProgramDoesIsHeard(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	p := r.program("a", 3)
	if err := errors.Join(p.Ping(ctx).Err(), p.ClientID(ctx).Err(), p.Info(ctx, "server").Err()); err != nil {
		t.Fatal(err)
	}
	if r.works["a"] != 0 {
		t.Errorf("it has done %d things", r.works["a"])
	}
	a := r.begin("a")
	if err := errors.Join(p.Set(ctx, "k", 1, 0).Err(), commit(ctx, a), p.Incr(ctx, "k").Err(), p.Publish(ctx, "news", "k").Err()); err != nil {
		t.Fatal(err)
	}
	if r.works["a"] != 3 {
		t.Errorf("it has done %d things, and not 3", r.works["a"])
	}
}

// What a run has come to is written in one step with what an attempt has done, if the run is still its owner's, and both are of one store.
func TestACommitIsNoted(t *testing.T) {
	for name, c := range map[string]struct {
		store, owner string
		meanwhile    bool // somebody else writes what the attempt has read
		noted        bool
		want         error
		n            string
	}{
		"by its owner":               {"sessions", "me", false, true, nil, "2"},
		"by an earlier one":          {"sessions", "me before", false, false, attempt.ErrFenced, "1"},
		"nothing but the owner":      {"sessions", "me", false, true, nil, "2"},
		"in another store":           {"orders", "me", false, false, nil, "2"},
		"of something else than now": {"sessions", "me", true, false, attempt.ErrSquashed, "7"},
	} {
		t.Run(name, func(t *testing.T) {
			r, ctx := newRig(t), t.Context()
			r.ready()
			r.outside.Set(ctx, "n", 1, 0)
			r.outside.HSet(ctx, "record", "owner", "me")
			a, p := r.begin("a"), r.program("a", 2)
			if n, err := p.Incr(ctx, "n").Result(); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			if c.meanwhile {
				r.outside.Set(ctx, "n", 7, 0)
			}
			n := &attempt.Note{Store: c.store, Record: "record", Owner: c.owner, Field: "call:1", Value: "2"}
			if name == "nothing but the owner" {
				n.Field, n.Value = "", ""
			}
			_, noted, err := attempt.Commit(ctx, []*attempt.Attempt{a}, []*attempt.Note{n})
			if noted != c.noted || !errors.Is(err, c.want) {
				t.Errorf("noted %t, %v, want %t, %v", noted, err, c.noted, c.want)
			}
			want := ""
			if c.noted {
				want = n.Value
			}
			if got, n := r.outside.HGet(ctx, "record", "call:1").Val(), r.outside.Get(ctx, "n").Val(); got != want || n != c.n {
				t.Errorf("the store has n %s, want %s, and %q in the record, want %q", n, c.n, got, want)
			}
		})
	}
}

// Nobody sees what a program does before its turn, and all of it counts when the turn comes.
func TestAnAttemptIsUnseen(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("version ", protocol), func(t *testing.T) {
			r, ctx := newRig(t), t.Context()
			r.ready()
			expires := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			r.outside.Set(ctx, "n", 41, 0)
			r.outside.HSet(ctx, "h", "a", 1)
			r.outside.Set(ctx, "gone", "x", 0)
			r.outside.Set(ctx, "session", "y", 0)
			r.outside.PExpireAt(ctx, "session", expires)
			before := r.all()
			a, p := r.begin("i"), r.program("i", protocol)
			if n, err := p.Incr(ctx, "n").Result(); err != nil || n != 42 {
				t.Fatal(n, err)
			}
			if err := p.HSet(ctx, "h", "b", 2).Err(); err != nil {
				t.Error(err)
			}
			if got, err := p.HGetAll(ctx, "h").Result(); err != nil || len(got) != 2 {
				t.Error(got, err)
			}
			if n, err := p.Del(ctx, "gone").Result(); err != nil || n != 1 {
				t.Error(n, err)
			}
			if err := p.Append(ctx, "session", "z").Err(); err != nil {
				t.Error(err)
			}
			if err := p.Set(ctx, "new", "v", 0).Err(); err != nil {
				t.Error(err)
			}
			if _, err := p.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.RPush(ctx, "list", "a", "b")
				return pipe.LPop(ctx, "list").Err()
			}); err != nil {
				t.Error(err)
			}
			if err := p.Ping(ctx).Err(); err != nil {
				t.Error(err)
			}
			if after := r.all(); !reflect.DeepEqual(after, before) {
				t.Errorf("others see %v", after)
			}
			if err := a.Adopt(); !errors.Is(err, attempt.ErrEffect) {
				t.Fatal(err)
			}
			if err := commit(ctx, a); err != nil {
				t.Fatal(err)
			}
			if got := r.outside.Get(ctx, "n").Val() + r.outside.HGet(ctx, "h", "b").Val() + r.outside.Get(ctx, "new").Val() +
				r.outside.Get(ctx, "session").Val() + strings.Join(r.outside.LRange(ctx, "list", 0, -1).Val(), ","); got != "422vyzb" {
				t.Errorf("the store has %q", got)
			}
			if r.outside.Exists(ctx, "gone").Val() != 0 {
				t.Error("what was deleted is there")
			}
			if at, err := r.outside.PExpireTime(ctx, "session").Result(); err != nil || at != time.Duration(expires.UnixMilli())*time.Millisecond {
				t.Errorf("it expires at %s, want %d: %v", at, expires.UnixMilli(), err)
			}
			if n, err := p.Incr(ctx, "n").Result(); err != nil || n != 43 || r.outside.Get(ctx, "n").Val() != "43" {
				t.Errorf("in its turn it does not work on the store: %d, %v", n, err)
			}
		})
	}
}

// Nothing of a squashed attempt counts, and its program hears of it.
func TestASquashedAttemptIsNothing(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	r.outside.Set(ctx, "n", 1, 0)
	a, p := r.begin("i"), r.program("i", 2)
	if err := p.Incr(ctx, "n").Err(); err != nil {
		t.Fatal(err)
	}
	a.Squash()
	if err := p.Incr(ctx, "n").Err(); err == nil || !strings.Contains(err.Error(), "nobody wants") {
		t.Errorf("it hears %v", err)
	}
	if err := commit(ctx, a); err == nil {
		t.Error("it is committed")
	}
	if n := r.outside.Get(ctx, "n").Val(); n != "1" {
		t.Errorf("the store has %s", n)
	}
	r.begin("i").Squash()
	next := r.begin("i") // by the same connections
	if n, err := p.Incr(ctx, "n").Result(); err != nil || n != 2 {
		t.Errorf("the next attempt sees %d, %v", n, err)
	}
	if err := commit(ctx, next); err != nil || r.outside.Get(ctx, "n").Val() != "2" {
		t.Error(err)
	}
}

// Others may write what an attempt has read: then it does not count.
func TestWhatWasReadHasToHold(t *testing.T) {
	for name, c := range map[string]struct {
		before, ahead, others []string // commands
		commits               bool
	}{
		"nothing happens":        {[]string{"SET k 1"}, []string{"GET k"}, nil, true},
		"a value changes":        {[]string{"SET k 1"}, []string{"GET k"}, []string{"SET k 2"}, false},
		"it changes, and back":   {[]string{"SET k 1"}, []string{"GET k"}, []string{"SET k 2", "SET k 1"}, true},
		"another one changes":    {[]string{"SET k 1"}, []string{"GET k"}, []string{"SET l 2"}, true},
		"it comes to be":         {nil, []string{"GET k"}, []string{"SET k 1"}, false},
		"it goes":                {[]string{"SET k 1"}, []string{"GET k"}, []string{"DEL k"}, false},
		"it is to expire":        {[]string{"SET k 1"}, []string{"GET k"}, []string{"EXPIRE k 100"}, false},
		"a field changes":        {[]string{"HSET k a 1"}, []string{"HGET k b"}, []string{"HSET k a 2"}, false},
		"it is written only":     {[]string{"SET k 1"}, []string{"SET k 5"}, []string{"SET k 2"}, true},
		"several, written only":  {nil, []string{"MSET k 5 l 6"}, []string{"SET k 2", "RPUSH l x"}, true},
		"written, and then read": {[]string{"SET k 1"}, []string{"SET k 5", "GET k"}, []string{"SET k 2"}, true},
		"read, and then written": {[]string{"SET k 1"}, []string{"GET k", "SET k 5"}, []string{"SET k 2"}, false},
		"written with a look":    {[]string{"SET k 1"}, []string{"SET k 5 NX"}, []string{"DEL k"}, false},
		"one of many":            {[]string{"MSET a 1 b 1 c 1"}, []string{"MGET a b c", "SET d 1"}, []string{"INCR b"}, false},
		"another kind":           {[]string{"SET k 1"}, []string{"STRLEN k"}, []string{"DEL k", "RPUSH k 1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ctx := newRig(t), t.Context()
			r.ready()
			do := func(c *redis.Client, commands []string) {
				t.Helper()
				for _, line := range commands {
					var words []any
					for _, w := range strings.Fields(line) {
						words = append(words, w)
					}
					if err := c.Do(ctx, words...).Err(); err != nil && !errors.Is(err, redis.Nil) {
						t.Fatal(line, err)
					}
				}
			}
			do(r.outside, c.before)
			a, p := r.begin("i"), r.program("i", 2)
			do(p, c.ahead)
			do(r.outside, c.others)
			before := r.all()
			err := commit(ctx, a)
			if (err == nil) != c.commits || a.InTurn() != c.commits {
				t.Errorf("it is committed: %v", err)
			}
			if after := r.all(); err != nil && !reflect.DeepEqual(after, before) {
				t.Errorf("it has half an effect: %v", after)
			}
			if strings.Contains(c.ahead[len(c.ahead)-1], "k 5") && c.commits && r.outside.Get(ctx, "k").Val() != "5" {
				t.Error("what it has written is not there")
			}
		})
	}
}

// What cannot be versioned waits for the turn.
func TestWhatWaitsForItsTurn(t *testing.T) {
	for name, words := range map[string][]any{
		"all keys": {"KEYS", "*"}, "Lua": {"EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "k"}, "everything goes": {"FLUSHALL"},
		"a message": {"PUBLISH", "c", "m"}, "a blocking one": {"BLPOP", "list", 1}, "at random": {"SRANDMEMBER", "set"}, "the time": {"TIME"},
		"movable keys": {"SORT", "list"}, "an unknown one": {"NONSENSE", "k"}, "a large value": {"GET", "large"}, "an entry": {"XADD", "s", "*", "a", "b"},
		"its own format": {"RESTORE", "k", 0, "x"}, "a slow one": {"LCS", "list", "list"}, "many values": {"MGET", "half", "other", "half2"},
		"soon over": {"GET", "soon"}, "a long command": {"SET", "k", strings.Repeat("x", 100_000)}, "settings": {"CONFIG", "SET", "maxmemory-samples", 5},
		"another database": {"COPY", "first", "second", "DB", 5}, "from here to there": {"MOVE", "first", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ctx := newRig(t), t.Context()
			r.ready()
			r.outside.Set(ctx, "large", strings.Repeat("y", 2<<20), 0)
			r.outside.RPush(ctx, "list", 1)
			r.outside.MSet(ctx, "half", strings.Repeat("a", 900_000), "other", strings.Repeat("b", 900_000), "half2", strings.Repeat("c", 900_000))
			r.outside.Set(ctx, "soon", 1, 5*time.Second)
			before := r.all()
			a, p := r.begin("i"), r.program("i", 2)
			if err := p.Set(ctx, "first", 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- p.Do(context.WithoutCancel(ctx), words...).Err() }()
			select {
			case <-r.waiting:
			case err := <-done:
				t.Fatalf("it does not wait: %v", err)
			}
			if after := r.all(); !reflect.DeepEqual(after, before) {
				t.Errorf("others see %v", after)
			}
			if err := commit(ctx, a); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil && !errors.Is(err, redis.Nil) && name != "an unknown one" && name != "its own format" && name != "a slow one" {
				t.Error(err)
			}
			if name != "everything goes" && name != "from here to there" && r.outside.Get(ctx, "first").Val() != "1" {
				t.Error("what came before it has no effect")
			}
		})
	}
}

// A transaction that is open when the turn comes cannot go on at the store.
func TestTransactions(t *testing.T) {
	for name, c := range map[string]struct {
		says    []string
		commits bool
	}{
		"complete": {[]string{"WATCH k", "GET k", "MULTI", "INCR k", "EXEC"}, true}, "given up": {[]string{"MULTI", "INCR k", "DISCARD"}, true},
		"watching": {[]string{"WATCH k"}, false}, "queueing": {[]string{"MULTI", "INCR k"}, false}, "not watching any more": {[]string{"WATCH k", "UNWATCH"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, ctx := newRig(t), t.Context()
			r.ready()
			a, p := r.begin("i"), r.program("i", 2).Conn()
			defer p.Close()
			for _, line := range c.says {
				var words []any
				for _, w := range strings.Fields(line) {
					words = append(words, w)
				}
				if err := p.Process(ctx, redis.NewCmd(ctx, words...)); err != nil && !errors.Is(err, redis.Nil) {
					t.Fatal(line, err)
				}
			}
			if err := commit(ctx, a); (err == nil) != c.commits {
				t.Error(err)
			}
		})
	}
}

// killEngine kills the only child of this process that listens on a unix socket alone.
func killEngine(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		said, _ := os.ReadFile(path) // one that has ended meanwhile says nothing
		status, _ := os.ReadFile(filepath.Dir(path) + "/status")
		if strings.Contains(string(said), "redis-server unixsocket:") && strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", os.Getpid())) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
				t.Fatal(path, err)
			}
			return
		}
	}
	t.Fatal("there is no engine")
}

// An attempt whose copies are lost is squashed, and the engine comes again.
func TestTheEngineIsKilled(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	a, p := r.begin("i"), r.program("i", 2)
	if err := p.Set(ctx, "k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	killEngine(t)
	err := p.Get(ctx, "k").Err()
	if err == nil || !a.IsSquashed() {
		t.Errorf("it goes on: %v", err)
	}
	if err := commit(ctx, a); err == nil || r.outside.Exists(ctx, "k").Val() != 0 {
		t.Errorf("a squashed attempt has an effect: %v", err)
	}
}

// A store that cannot be reached has not been written; of one that does not answer nobody knows.
func TestTheStoreIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*rig)
		want error
	}{
		"it is gone":         {func(r *rig) { r.outside.ShutdownNoSave(t.Context()) }, attempt.ErrSquashed},
		"it does not answer": {func(r *rig) { r.outside.Do(t.Context(), "CLIENT", "PAUSE", time.Hour.Milliseconds(), "ALL") }, attempt.ErrUnclear},
	} {
		t.Run(name, func(t *testing.T) {
			r, ctx := newRig(t), t.Context()
			r.ready()
			a, p := r.begin("i"), r.program("i", 2)
			if err := p.Set(ctx, "k", 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
			c.lose(r)
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if err := commit(ctx, a); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// Nothing is written but what a command has written.
func TestCommandsThatDoNothing(t *testing.T) {
	for name, lines := range map[string][]string{
		"a key that is there": {"SETNX k mine"}, "several": {"MSETNX k mine l mine"}, "a wrong time": {"SETEX k 0 v"}, "a word too few": {"MSET k 1 l"},
		"an option": {"SET k v NX"}, "given up": {"MULTI", "SET k 1", "DISCARD"}, "a wrong kind": {"LPUSH k 1"}, "looked at then": {"SETEX k 0 v", "GET k"},
		"a transaction that fails": {"MULTI", "SET k 1", "SET k", "EXEC"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ctx := newRig(t), t.Context()
			r.ready()
			r.outside.Set(ctx, "k", "precious", 0)
			a, p := r.begin("i"), r.program("i", 2).Conn()
			defer p.Close()
			for _, line := range lines {
				var words []any
				for _, w := range strings.Fields(line) {
					words = append(words, w)
				}
				_ = p.Process(ctx, redis.NewCmd(ctx, words...)) // most are refused
			}
			if err := commit(ctx, a); err != nil {
				t.Fatal(err)
			}
			if got := r.all(); len(got) != 1 || r.outside.Get(ctx, "k").Val() != "precious" {
				t.Errorf("the store has %v", got)
			}
		})
	}
}

// A program whose attempt counts hears nothing else, also while it comes to count.
func TestACommitIsNotSeen(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	p := r.program("i", 2)
	for range 200 {
		a := r.begin("i")
		if err := p.Incr(ctx, "n").Err(); err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		stop := make(chan struct{})
		heard := make([]error, 3)
		for i := range heard {
			asking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						heard[i] = errors.Join(heard[i], p.Get(ctx, "n").Err())
					}
				}
			})
		}
		err := commit(ctx, a)
		close(stop)
		asking.Wait()
		if err := errors.Join(append(heard, err)...); err != nil {
			t.Fatal(err)
		}
	}
}

// A client may write all before it reads anything.
func TestLongPipelines(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	r.outside.Set(ctx, "k", strings.Repeat("v", 1000), 0)
	for _, early := range []bool{false, true} {
		p, a := r.program(fmt.Sprint("i", early), 2), attempt.New()
		if early {
			a = r.begin(fmt.Sprint("i", early))
		}
		answers, err := p.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range 50_000 {
				pipe.Get(ctx, "k")
			}
			return nil
		})
		if early { // it is not held up by that when its turn comes
			if err == nil || !a.IsSquashed() {
				t.Errorf("squashed %v: %v", a.IsSquashed(), err)
			}
		} else if err != nil || len(answers) != 50_000 {
			t.Errorf("%d answers, %v", len(answers), err)
		}
	}
}

// A program that does not read keeps nobody from the turn.
func TestAProgramThatDoesNotRead(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	r.outside.Set(ctx, "k", strings.Repeat("v", 500_000), 0)
	a, p := r.begin("i"), r.dial("i")
	defer p.Close()
	for range 20 {
		_ = p.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(p, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n") // at last nobody reads it
	}
	if _, err := io.ReadFull(p, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := commit(ctx, a); err != nil {
		t.Error(err)
	}
}

// What a program no longer waits for has no effect in its turn.
func TestAProgramThatGivesUp(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	a, p := r.begin("i"), r.dial("i")
	script := "return redis.call('INCR', 'hits')"
	_, _ = fmt.Fprintf(p, "*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n", len(script), script)
	<-r.waiting
	_ = p.Close()
	select {
	case <-a.Squashed():
	case <-time.After(patience):
		t.Error("an attempt whose program does not wait for its turn is not squashed")
	}
	if n := r.outside.Exists(ctx, "hits").Val(); n != 0 {
		t.Error("it has an effect")
	}
}

// As is one that does not wait for the answer of the function that writes what it is about to read.
func TestAProgramThatGivesUpWhileItStalls(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	stalls := attempt.NewStalls()
	for range 3 {
		run := &line{Line: attempt.NewLine(stalls)}
		a, b := run.next("a"), run.next("b")
		since := time.Now()
		a.Counts([]string{"k"})
		b.Conflicts([]string{"k"}, since)
	}
	run := &line{Line: attempt.NewLine(stalls)}
	r.gives("first", run.next("a"))
	b, p := r.gives("second", run.next("b")), r.dial("second")
	_, _ = io.WriteString(p, "*2\r\n$4\r\nINCR\r\n$4\r\nhits\r\n")
	<-r.waiting
	_ = p.Close()
	select {
	case <-b.Squashed():
	case <-time.After(patience):
		t.Error("an attempt whose program does not wait is not squashed")
	}
	if n := r.outside.Exists(ctx, "hits").Val(); n != 0 {
		t.Error("it has an effect")
	}
}

// A function finds what another one of its run has written before it, when that has answered; not before, and not what does not count.
func TestForwarding(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	first, second, third := r.program("first", 2), r.program("second", 2), r.program("third", 2)
	set := func(n int) {
		if err := errors.Join(r.outside.Set(ctx, "n", n, 0).Err(), r.outside.Set(ctx, "m", 7, time.Hour).Err()); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	run := &line{Line: attempt.NewLine(attempt.NewStalls())}
	a, b, c := r.gives("first", run.next("a")), r.gives("second", run.next("b")), r.gives("third", run.next("c"))
	if err := errors.Join(first.Incr(ctx, "n").Err(), first.Del(ctx, "m").Err()); err != nil {
		t.Fatal(err)
	}
	if n := second.Get(ctx, "n").Val(); n != "1" {
		t.Errorf("another one sees half of it: %s", n)
	}
	answers(a)
	if got := fmt.Sprint(third.Incr(ctx, "n").Val(), third.Exists(ctx, "m").Val()); got != "3 0" {
		t.Errorf("the third one finds %s, want 3 0", got)
	}
	if err := errors.Join(commit(ctx, a), commit(ctx, c)); err != nil {
		t.Errorf("they do not count: %v", err)
	}
	if err := commit(ctx, b); !errors.Is(err, attempt.ErrSquashed) {
		t.Errorf("what the second one has read was something else: %v", err)
	}
	if got := r.outside.Get(ctx, "n").Val(); got != "3" {
		t.Errorf("the store has %s", got)
	}

	set(1) // what was forwarded has to come true
	run = &line{Line: attempt.NewLine(attempt.NewStalls())}
	a, b = r.gives("first", run.next("a")), r.gives("second", run.next("b"))
	first.Incr(ctx, "n")
	answers(a)
	if n := second.Get(ctx, "n").Val(); n != "2" {
		t.Errorf("it finds %s", n)
	}
	a.Squash()
	if err := commit(ctx, b); !errors.Is(err, attempt.ErrSquashed) {
		t.Errorf("what it has read never was: %v", err)
	}
}

// Attempts that have answered count in one step, as far as all holds that they have read, and each with its note.
func TestNeighboursAreCommittedTogether(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		meanwhile func(r *rig, programs []*redis.Client, all []*attempt.Attempt) // before they are to count
		store     string                                                         // of the notes
		owner     string                                                         // of the run
		count     int
		want      error
		n, m      string // that the store has in the end
		noted     int
	}{
		"all of them":                     {count: 3, n: "4", m: "3"},
		"with notes":                      {store: "sessions", owner: "me", count: 3, n: "4", m: "3", noted: 3},
		"noted in another one":            {store: "orders", owner: "me", count: 1, n: "2", m: "1"},
		"of a run that somebody else has": {store: "sessions", owner: "other", want: attempt.ErrFenced, n: "1", m: "1"},
		"one is at work": {meanwhile: func(_ *rig, programs []*redis.Client, _ []*attempt.Attempt) { programs[2].Do(ctx, "MULTI") },
			count: 2, n: "3", m: "2"},
		"the last has read what has changed": {meanwhile: func(r *rig, _ []*redis.Client, _ []*attempt.Attempt) { r.outside.Set(ctx, "other", "x", 0) },
			store: "sessions", owner: "me", count: 2, n: "3", m: "2", noted: 2},
		"the first has": {meanwhile: func(r *rig, _ []*redis.Client, _ []*attempt.Attempt) { r.outside.Set(ctx, "n", "7", 0) },
			want: attempt.ErrSquashed, n: "7", m: "1"},
		"the second was squashed": {meanwhile: func(_ *rig, _ []*redis.Client, all []*attempt.Attempt) { all[1].Squash() }, count: 1, n: "2", m: "1"},
		"the last writes what it may not": {meanwhile: func(r *rig, _ []*redis.Client, _ []*attempt.Attempt) {
			r.outside.Do(ctx, "ACL", "SETUSER", "default", "resetkeys", "~n", "~m", "~record", "%R~other")
		},
			count: 1, n: "2", m: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ready()
			r.outside.MSet(ctx, "n", 1, "m", 1)
			r.outside.HSet(ctx, "record", "owner", "me")
			run := &line{Line: attempt.NewLine(attempt.NewStalls())}
			var all []*attempt.Attempt
			var notes []*attempt.Note
			var programs []*redis.Client
			for i, name := range []string{"first", "second", "third"} {
				a, p := r.gives(name, run.next(name)), r.program(name, 2)
				programs = append(programs, p)
				all, notes = append(all, a), append(notes, nil)
				if n := p.Incr(ctx, "n").Val(); n != int64(i+2) {
					t.Fatalf("attempt %d finds %d", i, n)
				}
				if i > 0 {
					p.Incr(ctx, "m")
				}
				if i == 2 {
					p.Append(ctx, "other", "y")
				}
				answers(a)
				if c.store != "" {
					notes[i] = &attempt.Note{Store: c.store, Record: "record", Owner: c.owner, Field: fmt.Sprint("call:", i), Value: "x"}
				}
			}
			if c.meanwhile != nil {
				c.meanwhile(r, programs, all)
			}
			count, noted, err := attempt.Commit(ctx, all, notes)
			if count != c.count || !errors.Is(err, c.want) || noted != (c.noted > 0) {
				t.Errorf("%d count, %v, noted %t", count, err, noted)
			}
			if n, m := r.outside.Get(ctx, "n").Val(), r.outside.Get(ctx, "m").Val(); n != c.n || m != c.m {
				t.Errorf("the store has n %s, m %s, want %s, %s", n, m, c.n, c.m)
			}
			if got := r.outside.HLen(ctx, "record"); got.Val() != int64(1+c.noted) {
				t.Errorf("%v, want %d notes", got, c.noted)
			}
		})
	}
}

// A function that has read too early three times in a row waits for the answer of the one that writes.
func TestStalls(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	first, second := r.program("first", 2), r.program("second", 2)
	stalls := attempt.NewStalls()
	for n := range 5 {
		run := &line{Line: attempt.NewLine(stalls)}
		a, b := r.gives("first", run.next("a")), r.gives("second", run.next("b"))
		read := make(chan string, 1)
		look := func() { read <- second.Get(ctx, "n").Val() }
		early := n < 3
		go look()
		if early {
			if got := <-read; got == fmt.Sprint(n+1) {
				t.Errorf("run %d: it finds %s", n, got)
			}
		}
		if err := first.Set(ctx, "n", n+1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-read:
			t.Errorf("run %d: it does not wait", n)
		default:
		}
		answers(a)
		if !early {
			if got := <-read; got != fmt.Sprint(n+1) {
				t.Errorf("run %d: it finds %s", n, got)
			}
		}
		if err := commit(ctx, a); err != nil {
			t.Error(err)
		}
		if err := commit(ctx, b); (err == nil) == early {
			t.Errorf("run %d: it counts: %v", n, err)
		}
	}
}

// Programs run ahead, in any order and with others that write the store meanwhile. What they saw and wrote is what they would have in
// their turns.
func TestItIsAsInTurn(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.ready()
	shadow := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Address, Protocol: 2}) // has everything done in its turn
	defer shadow.Close()
	keys := []string{"a", "b", "c", "d"}
	random := func() []any {
		k, l := keys[rand.N(len(keys))], keys[rand.N(len(keys))]
		return [][]any{{"GET", "s" + k}, {"SET", "s" + k, rand.N(3)}, {"INCR", "s" + k}, {"DEL", "s" + k, "s" + l}, {"MSET", "s" + k, 1, "s" + l, 2},
			{"MGET", "s" + k, "s" + l}, {"HSET", "h" + k, "f", rand.N(3)}, {"HGETALL", "h" + k}, {"RPUSH", "l" + k, rand.N(3)}, {"LPOP", "l" + k},
			{"LRANGE", "l" + k, 0, -1}, {"RENAME", "s" + k, "s" + l}, {"SETEX", "s" + k, 1000, 1}, {"SADD", "t" + k, rand.N(9)}, {"SMEMBERS", "t" + k},
			{"LLEN", "s" + k}, {"SUNIONSTORE", "t" + k, "t" + l, "t" + k}}[rand.N(17)]
	}
	say := func(c *redis.Client, words []any) string {
		v, err := c.Do(ctx, words...).Result()
		if list, is := v.([]any); is && words[0] == "SMEMBERS" {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return fmt.Sprint(v, err)
	}
	const instances = 3
	var programs []*redis.Client
	for i := range instances {
		programs = append(programs, r.program(fmt.Sprint(i), 2))
	}
	type work struct {
		a     *attempt.Attempt
		asked [][]any
		heard []string
	}
	at := make([]*work, instances)
	committed, followed, conflicts := 0, 0, 0
	run := &line{Line: attempt.NewLine(attempt.NewStalls())}
	ends := func(a *attempt.Attempt) {
		run.of = slices.DeleteFunc(slices.Clone(run.of), func(b *attempt.Attempt) bool { return b == a })
		run.Order(run.of)
	}
	for range 20_000 {
		i := rand.N(instances + 1)
		switch {
		case i == instances: // others
			if rand.N(4) == 0 {
				words := random()
				if got, want := say(r.outside, words), say(shadow, words); got != want {
					t.Fatalf("%v is answered %q, want %q", words, got, want)
				}
			}
		case at[i] == nil:
			at[i] = &work{a: r.gives(fmt.Sprint(i), run.next(fmt.Sprint(rand.Uint64())))}
		case rand.N(4) > 0 && !at[i].a.IsAnswered():
			words := random()
			at[i].asked, at[i].heard = append(at[i].asked, words), append(at[i].heard, say(programs[i], words))
		case rand.N(3) > 0:
			answers(at[i].a)
		default: // its turn
			w := at[i]
			at[i] = nil
			ends(w.a)
			if rand.N(8) == 0 {
				w.a.Squash()
				continue
			}
			err, count := w.a.Adopt(), 1
			group := []*work{w}
			if errors.Is(err, attempt.ErrEffect) {
				attempts := []*attempt.Attempt{w.a}
				for _, v := range at { // those that have answered may follow
					if v != nil && v.a.HasEffect() && rand.N(2) == 0 {
						group, attempts = append(group, v), append(attempts, v.a)
					}
				}
				count, err = together(ctx, attempts...)
			}
			if err != nil {
				conflicts++
				continue
			}
			committed++
			for n, w := range group[:count] {
				if n > 0 {
					followed++
					at[slices.Index(at, w)] = nil
					ends(w.a)
				}
				for n, words := range w.asked {
					if want := say(shadow, words); w.heard[n] != want {
						t.Fatalf("ahead, %v was answered %q; in its turn it is %q", words, w.heard[n], want)
					}
				}
			}
		}
	}
	if committed < 500 || followed < 50 || conflicts < 50 {
		t.Errorf("%d attempts count, %d with others, %d do not: the test shows little", committed, followed, conflicts)
	}
	names := r.outside.Keys(ctx, "*").Val()
	if n := len(shadow.Keys(ctx, "*").Val()); n != len(names) {
		t.Errorf("the store has %d keys, want %d", len(names), n)
	}
	for _, name := range names {
		read := []any{"GET", name}
		switch name[0] {
		case 'h':
			read = []any{"HGETALL", name}
		case 'l':
			read = []any{"LRANGE", name, 0, -1}
		case 't':
			read = []any{"SMEMBERS", name}
		}
		if got, want := say(r.outside, read), say(shadow, read); got != want {
			t.Errorf("%s holds %s, want %s", name, got, want)
		}
	}
}
