//go:build integration

package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// faultRuns are the runs of a workflow under faults, of which every faultEvery-th meets one; HEADSTART_FAULT_RUNS has others.
	faultRuns, faultEvery = 120, 30
	faultSeed             = 20261128
	// faultMark is a variable of the program that is killed.
	faultMark = "FAULT_MARK"
	// accounts are few: a run finds what the one before has left.
	accounts = 3
	// faultTasks pay into an account, and note on the way that the account's balance says what was paid, and that there was a run.
	faultTasks = `  - pay: { call: http, with: { method: post, endpoint: 'http://fault-pay.default/redis', query: { q: '${ "INCRBY fault:account:\(.account) \(.amount)" }' } } }
  - way: { switch: [ { odd: { when: (.said | tonumber) % 2 == 1, then: odd } }, { even: { then: even } } ] }
  - odd: { call: http, with: { method: post, endpoint: 'http://fault-note.default/redis', query: { q: '${ "RPUSH fault:odd \($workflow.input.run)" }' } }, then: count }
  - even: { call: http, with: { method: post, endpoint: 'http://fault-note.default/redis', query: { q: '${ "RPUSH fault:even \($workflow.input.run)" }' } } }
  - count: { call: http, with: { method: post, endpoint: 'http://fault-count.default/redis?q=INCR+fault:runs' } }
`
)

// ledger is what the store holds when the runs so far have been made one after the other.
type ledger struct {
	balance   [accounts]int
	odd, even []string
	runs      int
}

// faults are what happens to a run.
var faults = []struct {
	name string
	do   func(t *testing.T)
}{
	{"the daemon is killed", func(t *testing.T) { killDaemon(t, testbed.Edge) }},
	{"the node's own Redis is killed", func(t *testing.T) { killChild(t, "redis-server") }},
	{"a program is killed", func(t *testing.T) {
		kill(t, "no program has the mark", func(proc string) bool {
			env, err := os.ReadFile(filepath.Join(proc, "environ"))
			return err == nil && strings.Contains(string(env), faultMark+"=")
		})
	}},
}

// killChild kills a process of that name that the daemon has started.
func killChild(t *testing.T, name string) {
	daemon := bed.PID("headstart-node-" + testbed.Edge)
	kill(t, "the daemon has no process "+name, func(proc string) bool {
		b, err := os.ReadFile(filepath.Join(proc, "stat"))
		var pid, parent int
		var of, state string
		if err == nil {
			_, err = fmt.Sscanf(string(b), "%d %s %s %d", &pid, &of, &state, &parent)
		}
		return err == nil && parent == daemon && of == "("+name+")"
	})
}

// kill kills the first process that it is to be, by its place in /proc.
func kill(t *testing.T, none string, is func(proc string) bool) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Error(err)
	}
	for _, proc := range all {
		if !is(proc) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err == nil {
			err = testbed.Poll(context.WithoutCancel(t.Context()), settleTimeout, func(context.Context) error {
				if open, err := os.ReadDir(filepath.Join(proc, "fd")); err == nil && len(open) > 0 {
					return fmt.Errorf("process %d has descriptors still", pid)
				}
				return nil // a connection that it had has ended
			})
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Error(none)
}

// A run that is answered has done what a sequential one does, and has its answer, although programs are killed and others write the same
// keys. A run that is not answered has done a part of that, from its beginning, and nothing twice.
func TestRunsUnderFaults(t *testing.T) {
	runs := faultRuns
	if s := os.Getenv("HEADSTART_FAULT_RUNS"); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, destination := range map[string]string{"fault-pay": "sessions", "fault-note": "sessions", "fault-count": "sessions-inside"} {
		f := stateful(name, destination)
		f.Env["REDIS_URL"] += "?max_retries=-1" // a client that sends a command again may have it done twice
		if name == "fault-note" {
			f.Env[faultMark] = "1"
		}
		deploy(t, f)
	}
	deployWorkflow(t, "faults", faultTasks)
	store := servers.redis.Client(redisDB)
	defer store.Close()
	ctx, stop := context.WithCancel(t.Context())
	var others payments
	written := make(chan struct{})
	go func() { // who pays even amounts
		defer close(written)
		for ctx.Err() == nil {
			if err := others.pay(store); err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	defer func() { stop(); <-written }()
	r := rand.New(rand.NewPCG(faultSeed, uint64(runs)))
	var want ledger
	met, lost, run := map[string]int{}, 0, 0
	one := func(fault func(*testing.T)) {
		t.Helper()
		defer func() { run++ }()
		account, amount := r.IntN(accounts), 2*r.IntN(5)
		if r.IntN(10) == 0 { // the other way
			amount++
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if fault != nil {
				<-time.After(time.Duration(r.IntN(30)) * time.Millisecond) // nothing is waited for: faults come at any time of a run
				fault(t)
			}
		}()
		input := fmt.Sprintf(`{"run":%d,"account":%d,"amount":%d}`, run, account, amount)
		a, err := call{function: "faults", body: strings.NewReader(input)}.do(t.Context())
		<-done
		if fault != nil {
			eventually(t, "the node is back", func() error { return joined(t.Context(), testbed.Edge) })
		}
		next := want.with(strconv.Itoa(run), account, amount)
		if err == nil && a.status == http.StatusOK {
			next = next[len(next)-1:]
			if said := fmt.Sprintf(`{"error":"","said":"%d"}`, next[0].runs); strings.TrimSpace(string(a.body)) != said {
				t.Fatalf("run %d is answered %s, want %s", run, a.body, said)
			}
		} else if lost++; fault == nil {
			t.Errorf("run %d is lost without a fault: %d %.300s, %v", run, a.status, a.body, err)
		}
		eventually(t, "the store has what a sequential run leaves", func() (err error) {
			want, err = same(t.Context(), store, &others, next)
			return err
		})
	}
	for run < runs {
		var fault func(*testing.T)
		if run%faultEvery == faultEvery-1 {
			f := faults[run/faultEvery%len(faults)]
			met[f.name]++
			fault = f.do
		}
		one(fault)
	}
	t.Logf("%d runs, %d of them lost; met: %v", runs, lost, met)
	for _, f := range faults {
		if met[f.name] == 0 {
			t.Errorf("no run has met that %s", f.name)
		}
	}
	eventually(t, "calls run ahead", func() error {
		one(nil)
		adopted, err := bed.Metric(t.Context(), testbed.Edge, `headstart_workflow_ahead_total{result="adopted",workflow="default/faults"}`)
		if err == nil && adopted == 0 {
			err = errors.New("none has")
		}
		return err
	})
}

// payments are those of others.
type payments struct {
	mu  sync.Mutex
	sum int
}

func (p *payments) pay(store *redis.Client) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum += 2
	return store.IncrBy(context.Background(), "fault:account:0", 2).Err()
}

// with are the ledgers that a run makes of one, step by step.
func (l ledger) with(run string, account, amount int) (all []ledger) {
	all = append(all, l)
	l.balance[account] += amount
	all = append(all, l)
	if l.balance[account]%2 == 1 {
		l.odd = append(slices.Clip(l.odd), run)
	} else {
		l.even = append(slices.Clip(l.even), run)
	}
	all = append(all, l)
	l.runs++
	return append(all, l)
}

// same returns which of some ledgers the store holds, without what others have paid.
func same(ctx context.Context, store *redis.Client, others *payments, of []ledger) (ledger, error) {
	others.mu.Lock()
	defer others.mu.Unlock()
	var got ledger
	var failed error
	number := func(key string) int {
		n, err := store.Get(ctx, key).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			failed = errors.Join(failed, err)
		}
		return n
	}
	for i := range accounts {
		got.balance[i] = number(fmt.Sprintf("fault:account:%d", i))
	}
	got.runs = number("fault:runs")
	got.odd, got.even = store.LRange(ctx, "fault:odd", 0, -1).Val(), store.LRange(ctx, "fault:even", 0, -1).Val()
	if failed != nil {
		return of[0], failed
	}
	got.balance[0] -= others.sum
	for _, l := range of {
		if l.balance == got.balance && l.runs == got.runs && slices.Equal(l.odd, got.odd) && slices.Equal(l.even, got.even) {
			return l, nil
		}
	}
	last := of[len(of)-1]
	return of[0], fmt.Errorf("balances %v, %d runs, %d odd, %d even; want %v, %d, %d, %d", got.balance, got.runs, len(got.odd), len(got.even),
		last.balance, last.runs, len(last.odd), len(last.even))
}
