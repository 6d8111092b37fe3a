//go:build integration

package redis_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/trigger/redis"
	"github.com/headstart-mesh/headstart/shim/trigger/triggertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// server is a real one, on a unix socket.
type server struct {
	dir    string
	cmd    *exec.Cmd
	client *goredis.Client
}

func start(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: dir}
	o := &goredis.Options{Network: "unix", Addr: filepath.Join(dir, "redis.sock"), MaxRetries: -1, Protocol: 2, DialTimeout: patience}
	o.Dialer = redis.Bound(goredis.NewDialer(o))
	s.client = goredis.NewClient(o)
	s.run(t)
	t.Cleanup(func() {
		s.kill()
		_ = s.client.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

// run starts the server with what it had on disk.
func (s *server) run(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", "redis.sock", "--dir", s.dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	s.cmd.Dir = s.dir
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server answers", func() bool { return s.client.Ping(context.Background()).Err() == nil })
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// eventually asks until it is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// rig is one stream of a server.
type rig struct {
	*server
	key string
}

func (s *server) rig() *rig { return &rig{s, "cameras:" + strconv.Itoa(rand.IntN(1<<30))} }

// Open implements triggertest.Rig.
func (r *rig) Open(consumer string) trigger.Stream {
	return redis.New(redis.Config{Client: func() (*goredis.Client, error) { return r.client, nil }, Key: r.key, Function: triggertest.Function, Consumer: consumer})
}

const group = "headstart:" + triggertest.Function

// Add implements triggertest.Rig.
func (r *rig) Add(t *testing.T, fields map[string]string) string {
	t.Helper()
	values := make(map[string]any, len(fields))
	for name, value := range fields {
		values[name] = value
	}
	id, err := r.client.XAdd(t.Context(), &goredis.XAddArgs{Stream: r.key, Values: values}).Result()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Pending implements triggertest.Rig.
func (r *rig) Pending(t *testing.T) map[string]string {
	t.Helper()
	list, err := r.client.XPendingExt(context.Background(), &goredis.XPendingExtArgs{Stream: r.key, Group: group, Start: "-", End: "+", Count: 10_000}).Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range list {
		all[p.ID] = p.Consumer
	}
	return all
}

// Consumers implements triggertest.Rig.
func (r *rig) Consumers(t *testing.T) (names []string) {
	t.Helper()
	list, err := r.client.XInfoConsumers(context.Background(), r.key, group).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Name != "returned" {
			names = append(names, c.Name)
		}
	}
	return names
}

// Dead implements triggertest.Rig.
func (r *rig) Dead(t *testing.T) (all []map[string]string) {
	t.Helper()
	list, err := r.client.XRange(context.Background(), r.key+":dead", "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		fields := map[string]string{}
		for name, value := range m.Values {
			fields[name] = fmt.Sprint(value)
		}
		all = append(all, fields)
	}
	return all
}

// Lose implements triggertest.Rig.
func (r *rig) Lose(t *testing.T) {
	t.Helper()
	if err := r.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestStream(t *testing.T) {
	s := start(t)
	triggertest.Run(t, func(*testing.T) triggertest.Rig { return s.rig() })
}

// losing has the answers to some commands lost, by their names: so many of each.
type losing map[string]int

func (l losing) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (l losing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
func (l losing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if name := cmd.Name(); l[name] > 0 {
			l[name]--
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// An entry has been tried as often as it came, however often the server's answer was lost.
func TestLostAnswersAreNoTries(t *testing.T) {
	s := start(t)
	for command, lost := range map[string]losing{
		"a read":                     {"xreadgroup": 1},
		"a read, and its second way": {"xreadgroup": 1, "xclaim": 2},
		"a look for it":              {"xreadgroup": 1, "xpending": 2},
	} {
		t.Run(command, func(t *testing.T) {
			r := s.rig()
			id := r.Add(t, map[string]string{"data": "frame"})
			client := goredis.NewClient(s.client.Options())
			defer client.Close()
			client.AddHook(lost)
			stream := redis.New(redis.Config{
				Client: func() (*goredis.Client, error) { return client, nil },
				Key:    r.key, Function: triggertest.Function, Consumer: "a",
			})
			var got []trigger.Entry
			for tries := 0; tries < 10 && len(got) == 0; tries++ {
				got, _ = stream.Take(t.Context(), 1, time.Hour)
			}
			for name, left := range lost {
				if left > 0 {
					t.Errorf("%d answers to %s were not lost", left, name)
				}
			}
			if len(got) != 1 || got[0].ID != id || got[0].Tries != 1 || got[0].Fields["data"] != "frame" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// An entry that the producer has trimmed is no more; the others go on.
func TestTrimmedEntriesAreGone(t *testing.T) {
	r := start(t).rig()
	a, b := r.Open("a"), r.Open("b")
	for range 3 {
		r.Add(t, map[string]string{"data": "x"})
	}
	entries := triggertest.Collect(t, a, 3, time.Hour)
	if err := r.client.XTrimMaxLen(t.Context(), r.key, 1).Err(); err != nil {
		t.Fatal(err)
	}
	if mine, err := a.Settle(t.Context(), trigger.Fate{Verdict: trigger.Again, Entry: entries[0]}); mine || err != nil {
		t.Errorf("a trimmed entry is kept: %t, %v", mine, err)
	}
	got := triggertest.Collect(t, b, 1, time.Millisecond)
	if len(got) != 1 || got[0].ID != entries[2].ID {
		t.Errorf("got %v", got)
	}
	eventually(t, "the trimmed ones are forgotten", func() bool {
		if _, err := b.Take(t.Context(), 10, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		return len(r.Pending(t)) == 1
	})
}

// What an earlier daemon of the node had when it was killed need not rest: that one is gone.
// Another node's may be alive.
func TestAKilledDaemonsEntriesComeAtOnce(t *testing.T) {
	r := start(t).rig()
	for range 3 {
		r.Add(t, map[string]string{"data": "x"})
	}
	killed := triggertest.Collect(t, r.Open("edge-1/a/1"), 2, time.Hour)
	other := triggertest.Collect(t, r.Open("edge-10/a/1"), 1, time.Hour)
	next := redis.New(redis.Config{Client: func() (*goredis.Client, error) { return r.client, nil }, Key: r.key, Function: triggertest.Function,
		Consumer: "edge-1/b/1", Gone: trigger.Earlier("edge-1", "b")})
	got := triggertest.Collect(t, next, 2, time.Hour)
	for i, e := range got {
		if e.ID != killed[i].ID || e.Tries != 2 {
			t.Errorf("got %+v, want %s at its second try", e, killed[i].ID)
		}
	}
	if has := r.Pending(t)[other[0].ID]; has != "edge-10/a/1" {
		t.Errorf("%s has what another node may be working on", has)
	}
}

// after has do called when the first command that begins so was answered.
func after(command string, do func()) goredis.Hook {
	return answered{command: command, do: sync.OnceFunc(do)}
}

type answered struct {
	command string
	do      func()
}

func (answered) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (answered) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (a answered) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(strings.Trim(fmt.Sprint(cmd.Args()), "[]"), a.command) {
			a.do()
		}
		return err
	}
}

// A daemon's last read may wait at the server when the daemon is killed. What it is given then is
// not lost with it, even if the node's next one is just about to remove it.
func TestAKilledDaemonsLastReadIsNotLost(t *testing.T) {
	r := start(t).rig()
	killed := r.Open("edge-1/a/1")
	r.Add(t, map[string]string{"data": "x"})
	first := triggertest.Collect(t, killed, 1, time.Hour)[0]
	if _, err := killed.Settle(t.Context(), trigger.Fate{Verdict: trigger.Done, Entry: first}); err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(r.client.Options())
	defer client.Close()
	var late string
	client.AddHook(after("xinfo consumers", func() {
		late = r.Add(t, map[string]string{"data": "x"})
		if got, err := killed.Take(t.Context(), 1, time.Hour); err != nil || len(got) != 1 {
			t.Errorf("the killed one is given %v, %v", got, err)
		}
	}))
	next := redis.New(redis.Config{Client: func() (*goredis.Client, error) { return client, nil }, Key: r.key, Function: triggertest.Function,
		Consumer: "edge-1/b/1", Gone: trigger.Earlier("edge-1", "b")})
	if got := triggertest.Collect(t, next, 1, time.Second); got[0].ID != late || got[0].Tries != 2 {
		t.Errorf("got %+v, want %s at its second try", got, late)
	}
}

// A consumer that is gone is removed when nothing can be given to it any more.
func TestAKilledDaemonsConsumerIsRemoved(t *testing.T) {
	r := start(t).rig()
	r.Add(t, map[string]string{"data": "x"})
	triggertest.Collect(t, r.Open("edge-1/a/1"), 1, time.Hour)
	next := redis.New(redis.Config{Client: func() (*goredis.Client, error) { return r.client, nil }, Key: r.key, Function: triggertest.Function,
		Consumer: "edge-1/b/1", Gone: trigger.Earlier("edge-1", "b")})
	triggertest.Collect(t, next, 1, time.Hour)
	began := time.Now()
	eventually(t, "it is removed", func() bool {
		if _, err := next.Take(t.Context(), 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		return !slices.Contains(r.Consumers(t), "edge-1/a/1")
	})
	if after := time.Since(began); after < redis.Lingering/2 {
		t.Errorf("it is removed after %v", after)
	}
}

// What is no stream, and a server that wants a password, are told in its words.
func TestWhatIsWrongIsSaid(t *testing.T) {
	r := start(t).rig()
	if err := r.client.Set(t.Context(), r.key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var said goredis.Error
	if _, err := r.Open("a").Take(t.Context(), 1, time.Hour); !errors.As(err, &said) || !goredis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("%v", err)
	}
	away := errors.New("the store is gone")
	s := redis.New(redis.Config{Client: func() (*goredis.Client, error) { return nil, away }})
	if _, err := s.Take(t.Context(), 1, time.Hour); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
}

// narrow is a way to the server on which an answer takes too long that is longer than most.
type narrow struct {
	net.Conn
	most, got int
}

func (n *narrow) Write(p []byte) (int, error) {
	n.got = 0
	return n.Conn.Write(p)
}

func (n *narrow) Read(p []byte) (int, error) {
	read, err := n.Conn.Read(p)
	if n.got += read; n.got > n.most {
		return 0, os.ErrDeadlineExceeded
	}
	return read, err
}

// Entries that are too many for one answer come one by one.
func TestEntriesThatAreTooMuchAtATime(t *testing.T) {
	r := start(t).rig()
	client := goredis.NewClient(&goredis.Options{MaxRetries: -1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.dir, "redis.sock"))
		return &narrow{Conn: conn, most: 100 << 10}, err
	}})
	defer client.Close()
	want := map[string]bool{}
	for range 3 {
		want[r.Add(t, map[string]string{"data": strings.Repeat("x", 60<<10)})] = true
	}
	s := redis.New(redis.Config{Client: func() (*goredis.Client, error) { return client, nil }, Key: r.key, Function: triggertest.Function, Consumer: "a"})
	got := map[string]bool{}
	eventually(t, "all have come", func() bool {
		entries, err := s.Take(t.Context(), 16, time.Hour)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		for _, e := range entries {
			got[e.ID] = true
		}
		return len(got) == len(want)
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// An entry that cannot be moved to the dead letters stays pending.
func TestWithoutDeadLettersNothingIsLost(t *testing.T) {
	r := start(t).rig()
	if err := r.client.Set(t.Context(), r.key+":dead", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	a := r.Open("a")
	id := r.Add(t, map[string]string{"data": "x"})
	e := triggertest.Collect(t, a, 1, time.Hour)[0]
	if _, err := a.Settle(t.Context(), trigger.Fate{Verdict: trigger.Dead, Entry: e}); !goredis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("%v", err)
	}
	if d := cmp.Diff(map[string]string{id: "a"}, r.Pending(t)); d != "" {
		t.Error(d)
	}
}

// Dead letters do not fill the server.
func TestDeadLettersAreBounded(t *testing.T) {
	r := start(t).rig()
	a := r.Open("a")
	id := r.Add(t, map[string]string{"data": "x"})
	triggertest.Collect(t, a, 1, time.Hour)
	pipe := r.client.Pipeline()
	for range 12_000 {
		pipe.XAdd(t.Context(), &goredis.XAddArgs{Stream: r.key + ":dead", Values: []string{"data", "x"}})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Settle(t.Context(), trigger.Fate{Verdict: trigger.Dead, Entry: trigger.Entry{ID: id}}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Dead(t)); n < 10_000 || n > 10_200 {
		t.Errorf("%d dead letters are kept", n)
	}
}

// node is a whole one: consumers, and a function that counts.
type node struct {
	*trigger.Set
	mu   sync.Mutex
	got  map[string]int
	fail func(id string) bool
}

type noEvents struct{}

func (noEvents) Event(*nodeapi.Event) {}

func (r *rig) node(name string, fail func(id string) bool) *node {
	n := &node{got: map[string]int{}, fail: fail}
	n.Set = trigger.New(trigger.Config{Gateway: n, Node: name, Process: hex.EncodeToString([]byte(name)), Events: noEvents{},
		Metrics: trigger.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		Function: func(string) *nodeapi.Function { return &nodeapi.Function{Name: triggertest.Function} },
		Open:     func(_ *nodeapi.Trigger, consumer string) (trigger.Stream, error) { return r.Open(consumer), nil }})
	n.Set.Set([]*nodeapi.Trigger{{Function: triggertest.Function, Stream: "redis://cameras/frames", Tries: 2}})
	return n
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := r.Header.Get("ce-id")
	if n.got[id]++; n.fail != nil && n.fail(id) {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (n *node) calls() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.got)
}

func (n *node) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// done tells whether all that was added has been acknowledged.
func (r *rig) done(t *testing.T) bool {
	groups, err := r.client.XInfoGroups(t.Context(), r.key).Result()
	return err == nil && len(groups) == 1 && groups[0].Lag == 0 && groups[0].Pending == 0
}

// Two nodes share a group: each entry goes to one of them, poison to the dead letters, and
// nothing is lost when one of them ends.
func TestTwoNodesShareAStream(t *testing.T) {
	r := start(t).rig()
	poison := map[string]bool{}
	var mu sync.Mutex
	fail := func(id string) bool { mu.Lock(); defer mu.Unlock(); return poison[id] }
	a, b := r.node("edge-1", fail), r.node("edge-2", fail)
	var ids []string
	for i := range 300 {
		id := func() string {
			mu.Lock()
			defer mu.Unlock()
			id := r.Add(t, map[string]string{"data": strconv.Itoa(i)})
			poison[id] = i%100 == 50
			return id
		}()
		ids = append(ids, id)
		if i == 200 {
			a.end(t)
		}
	}
	eventually(t, "all are done", func() bool { return r.done(t) })
	b.end(t)
	if len(a.calls()) == 0 || len(b.calls()) == 0 {
		t.Errorf("one node had %d entries, the other %d", len(a.calls()), len(b.calls()))
	}
	for _, id := range ids {
		want := 1
		if poison[id] {
			want = 2
		}
		if n := a.calls()[id] + b.calls()[id]; n != want {
			t.Errorf("%s was delivered %d times, want %d", id, n, want)
		}
	}
	var dead []string
	for _, letter := range r.Dead(t) {
		dead = append(dead, letter["headstart-id"])
	}
	slices.Sort(dead)
	var want []string
	for id, is := range poison {
		if is {
			want = append(want, id)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, dead); d != "" {
		t.Errorf("dead letters (-want +got):\n%s", d)
	}
	if left := r.Consumers(t); len(left) != 0 {
		t.Errorf("still there: %q", left)
	}
}

// The server is killed again and again, and comes back with its data. Every entry that it
// took is delivered, and none is left.
func TestTheServerRestarts(t *testing.T) {
	s := start(t)
	r := s.rig()
	n := r.node("edge-1", nil)
	var ids []string
	for range 5 {
		for range 20 {
			ids = append(ids, r.Add(t, map[string]string{"data": "x"}))
		}
		s.kill()
		s.run(t)
	}
	all := func() bool {
		got := n.calls()
		return !slices.ContainsFunc(ids, func(id string) bool { return got[id] == 0 })
	}
	eventually(t, "all are delivered", all)
	eventually(t, "all are done", func() bool { return r.done(t) })
	// Who may still be given something by a read that the server's end cut short does not leave.
	// What is new comes by another one.
	ids = append(ids, r.Add(t, map[string]string{"data": "x"}))
	eventually(t, "the last one is delivered", all)
	eventually(t, "the last one is done", func() bool { return r.done(t) })
	n.end(t)
	if left := r.Consumers(t); len(left) != 0 {
		t.Errorf("still there: %q", left)
	}
}

// commands are those that docs/reference/triggers.md says a store's user needs.
var commands = regexp.MustCompile(`(?m)^\+xgroup .*$`)

// The user of the documentation can do all that is done, and nothing elsewhere.
func TestTheDocumentedUserIsEnough(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Start(t)
	admin := goredis.NewClient(&goredis.Options{Addr: s.Address})
	defer admin.Close()
	rules := []any{"ACL", "SETUSER", "headstart", "reset", "on", ">hunter2", "~cameras:*"}
	for _, rule := range strings.Fields(commands.FindString(string(page))) {
		rules = append(rules, rule)
	}
	if err := admin.Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	password := "hunter2"
	client := redis.Server{Address: s.Address, Database: 2, Credentials: func(context.Context) (string, string, error) { return "headstart", password, nil }}.NewClient()
	defer client.Close()
	open := func(key, consumer string) trigger.Stream {
		return redis.New(redis.Config{Client: func() (*goredis.Client, error) { return client, nil }, Key: key, Function: triggertest.Function, Consumer: consumer})
	}
	a, b := open("cameras:frames", "a"), open("cameras:frames", "b")
	for range 4 {
		if err := client.XAdd(t.Context(), &goredis.XAddArgs{Stream: "cameras:frames", Values: []string{"data", "x"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range triggertest.Collect(t, a, 4, time.Hour) {
		f := trigger.Fate{Verdict: []trigger.Verdict{trigger.Done, trigger.Again, trigger.Dead, trigger.Return}[i], Entry: e, Idle: time.Hour}
		if mine, err := a.Settle(t.Context(), f); !mine || err != nil {
			t.Errorf("verdict %d: %t, %v", f.Verdict, mine, err)
		}
	}
	triggertest.Collect(t, b, 2, time.Millisecond)
	if got, err := b.Backlog(t.Context()); got.Pending != 2 || err != nil {
		t.Errorf("backlog %+v, %v", got, err)
	}
	if err := a.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := open("others:frames", "a").Take(t.Context(), 1, time.Hour); !goredis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("another keyspace: %v", err)
	}
	password = "wrong"
	stranger := redis.Server{Address: s.Address, Credentials: func(context.Context) (string, string, error) { return "headstart", password, nil }}.NewClient()
	defer stranger.Close()
	if err := stranger.XLen(t.Context(), "cameras:frames").Err(); !goredis.HasErrorPrefix(err, "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}
