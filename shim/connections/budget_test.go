package connections

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/pool"
)

// What the control plane lends is the node's until it expires, from when the node asked. A late answer, and one to an earlier
// daemon, lend nothing.
func TestAllowancesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &nodeapi.Destination{Name: "ledger", Kind: "tcp", Address: "127.0.0.1:1", Origin: "node"}
		s, err := New(Config{Shims: &shims{}, SecretsDir: t.TempDir(), Metrics: noMetrics()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Set([]*nodeapi.Destination{e})
		allow := func(id, answers int64) {
			s.Allow(&nodeapi.Allowances{Id: id, Answers: answers, ExpiresIn: durationpb.New(30 * time.Second),
				Destinations: []*nodeapi.Allowance{{Destination: "ledger", Unused: 2}}})
		}
		obeyed := func(want int64) {
			t.Helper()
			if got := s.budget.word(nil, time.Now()).GetAllowances(); got != want {
				t.Errorf("the node obeys %d, want %d", got, want)
			}
		}
		first := s.budget.word(nil, time.Now())
		allow(7, first.GetId()+5)
		obeyed(0)
		time.Sleep(10 * time.Second)
		allow(8, first.GetId())
		obeyed(8)
		time.Sleep(20 * time.Second)
		obeyed(0)
		allow(9, first.GetId())
		obeyed(0)
	})
}

// The control plane hears of other numbers within two seconds, likewise again until it answers, and else every eight.
func TestHowOftenUnusedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Shims: &shims{}, SecretsDir: t.TempDir(), Metrics: noMetrics()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int64
		var answers atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.TellUnused(ctx, func(m *nodeapi.Unused) {
				if told.Add(1); answers.Load() {
					s.Allow(&nodeapi.Allowances{Id: 7, Answers: m.GetId(), ExpiresIn: durationpb.New(30 * time.Second)})
				}
			})
		}()
		defer func() { cancel(); <-done }()
		after := func(what string, d time.Duration, least, most int64) {
			t.Helper()
			before := told.Load()
			time.Sleep(d)
			synctest.Wait()
			if n := told.Load() - before; n < least || n > most {
				t.Errorf("%s: told %d times in %v", what, n, d)
			}
		}
		wants := func(function string) {
			s.pool.Take(ctx, pool.Key{Namespace: "shop", Function: function, Destination: "ledger"})
		}
		after("nothing is wanted", time.Minute, 0, 0)
		wants("shop/cart")
		after("nobody answers", 10*time.Second, 4, 6)
		answers.Store(true)
		after("it is answered", 31*time.Second, 3, 5)
		wants("shop/bill")
		after("another number", tellEvery, 1, 1)
	})
}
