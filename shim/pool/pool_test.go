package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/pool"
)

// server is a destination whose connections take setup to open.
type server struct {
	setup time.Duration

	mu     sync.Mutex
	fails  error
	open   map[*conn]bool
	opened int
	lost   map[string]int
	failed int
}

type conn struct {
	server *server
	key    pool.Key
	number int
	ended  chan struct{}
	end    sync.Once
	used   bool
}

func (c *conn) Watch(ctx context.Context) error {
	select {
	case <-c.ended:
		return errors.New("the server has ended it")
	case <-ctx.Done():
		return nil
	}
}

func (c *conn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.open, c)
	return nil
}

// drop is the server's end of it.
func (c *conn) drop() { c.end.Do(func() { close(c.ended) }) }

func (s *server) connect(ctx context.Context, k pool.Key) (*conn, error) {
	select {
	case <-time.After(s.setup):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return nil, s.fails
	}
	s.opened++
	c := &conn{server: s, key: k, number: s.opened, ended: make(chan struct{})}
	s.open[c] = true
	return c, nil
}

func (s *server) all() (all []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		all = append(all, c)
	}
	return all
}

// rig is a pool with a server.
func rig(setup time.Duration) (*pool.Pool[*conn], *server) {
	s := &server{setup: setup, open: map[*conn]bool{}, lost: map[string]int{}}
	return pool.New(pool.Config[*conn]{Open: s.connect,
		Lost: func(_ pool.Key, why string) { s.mu.Lock(); defer s.mu.Unlock(); s.lost[why]++ },
		Failed: func(pool.Key, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed++
		}}), s
}

func (s *server) losses(why string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[why]
}

func (s *server) failWith(err error) { s.mu.Lock(); defer s.mu.Unlock(); s.fails = err }

func of(function string) pool.Key {
	return pool.Key{Namespace: "shop", Function: "shop/" + function, Destination: "orders"}
}

// ever is longer than any test takes.
func ever() time.Time { return time.Now().Add(1000 * time.Hour) }

func settle(d time.Duration) { time.Sleep(d); synctest.Wait() }

// The second start finds a connection, of its own function alone, and each is used once.
func TestAConnectionWaitsForTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(50 * time.Millisecond)
		defer p.Close()
		p.Allow("orders", 4, ever())
		if _, ok := p.Take(t.Context(), of("cart")); ok {
			t.Error("the first start got one")
		}
		settle(time.Second)
		if _, ok := p.Take(t.Context(), of("bill")); ok {
			t.Error("another function got it")
		}
		first, ok := p.Take(t.Context(), of("cart"))
		if !ok || first.key != of("cart") {
			t.Fatalf("the second start got %v", first)
		}
		if again, ok := p.Take(t.Context(), of("cart")); ok {
			t.Errorf("the third at once got %v", again)
		}
		settle(time.Second)
		if next, ok := p.Take(t.Context(), of("cart")); !ok || next == first {
			t.Errorf("a later one got %v, %t", next, ok)
		}
		if got := len(s.all()); got < 3 { // two were taken, and are their programs'
			t.Errorf("%d connections are open", got)
		}
	})
}

// Nothing is opened before somebody has allowed it, nor after that has expired; what was open then is closed in time.
func TestNothingIsHeldThatIsNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Take(t.Context(), of("cart"))
		settle(time.Minute)
		if s.opened > 0 {
			t.Error("it was opened without leave")
		}
		p.Allow("orders", 1, time.Now().Add(10*time.Second))
		settle(time.Second)
		if n := len(s.all()); n != 1 || heldOf(p) != 1 {
			t.Errorf("%d are open, %d held", n, heldOf(p))
		}
		settle(9 * time.Second)
		if n := len(s.all()); n != 0 || heldOf(p) != 0 || s.losses(pool.LostExcess) != 1 {
			t.Errorf("%d are open, %d held, %v", n, heldOf(p), s.lost)
		}
	})
}

// As many wait as start in the time that a new one takes, whether the starts come one by one or in a burst.
func TestSizeFollowsStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := rig(100 * time.Millisecond)
		defer p.Close()
		p.Allow("orders", 100, ever())
		held := func(f string) int {
			settle(5 * time.Second)
			for _, u := range p.Usage() {
				if u.Function == "shop/"+f {
					return u.Held
				}
			}
			return 0
		}
		for range 5 {
			p.Take(t.Context(), of("single"))
			settle(time.Second)
		}
		for range 5 {
			p.Take(t.Context(), of("burst"))
		}
		for range 50 {
			p.Take(t.Context(), of("huge"))
		}
		for f, want := range map[string]int{"single": 1, "burst": 5, "huge": 8} {
			if got := held(f); got != want {
				t.Errorf("%s: %d wait, want %d", f, got, want)
			}
		}
		settle(11 * time.Minute)
		if all := p.Usage(); len(all) > 0 {
			t.Errorf("functions that start no more have %v", all)
		}
	})
}

// One that has ended, has got something, or has waited for long is replaced; none of these is ever handed out.
func TestUnusedConnectionsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 4, ever())
		p.Take(t.Context(), of("cart"))
		settle(time.Second)
		old := s.all()[0]
		old.drop()
		if c, ok := p.Take(t.Context(), of("cart")); ok && c == old {
			t.Error("an ended one is handed out")
		}
		settle(time.Second)
		if n := len(s.all()); n != 1 || s.losses(pool.LostEnded) != 1 {
			t.Errorf("%d are open, lost: %v", n, s.lost)
		}
		settle(4 * time.Minute)
		if s.losses(pool.LostAge) != 1 || len(s.all()) != 1 {
			t.Errorf("after 4 minutes: %v", s.lost)
		}
		before := s.all()[0]
		p.Renew("orders")
		settle(time.Second)
		if now := s.all(); len(now) != 1 || now[0] == before || s.losses(pool.LostRenewed) != 1 {
			t.Errorf("after a new secret: %v", s.lost)
		}
	})
}

// A program that starts while one is opened for its function gets that one; a second program does not wait for it.
func TestTheOneThatIsBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Second)
		defer p.Close()
		p.Allow("orders", 4, ever())
		p.Take(t.Context(), of("cart"))
		settle(500 * time.Millisecond) // of which the pause before the opening is 100
		began := time.Now()
		hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if c, ok := p.Take(hurried, of("cart")); ok {
			t.Errorf("one that does not wait got %v", c)
		}
		got := make(chan *conn)
		go func() { c, _ := p.Take(t.Context(), of("cart")); got <- c }()
		synctest.Wait()
		if c, ok := p.Take(t.Context(), of("cart")); ok || time.Since(began) != 100*time.Millisecond {
			t.Errorf("the second got %v after %v", c, time.Since(began))
		}
		if c := <-got; c == nil || time.Since(began) != 600*time.Millisecond {
			t.Errorf("the first got %v after %v", c, time.Since(began))
		}
		settle(time.Minute)
		s.failWith(errors.New("refused"))
		p.Renew("orders")
		settle(200 * time.Millisecond)
		if c, ok := p.Take(t.Context(), of("cart")); ok {
			t.Errorf("of a server that refuses: %v", c)
		}
	})
}

// One that was being opened when the secret changed is not used.
func TestRenewedWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Second)
		defer p.Close()
		p.Allow("orders", 1, ever())
		p.Take(t.Context(), of("cart"))
		settle(500 * time.Millisecond)
		p.Renew("orders")
		settle(3 * time.Second)
		if all := s.all(); len(all) != 1 || all[0].number != 2 {
			t.Errorf("%d are open", len(all))
		}
	})
}

// A server that refuses is asked again ever later, and at once when something about it has changed.
func TestFailuresBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		s.failWith(errors.New("too many clients"))
		p.Allow("orders", 1, ever())
		p.Take(t.Context(), of("cart"))
		settle(8 * time.Minute)
		if s.failed < 8 || s.failed > 25 {
			t.Errorf("%d tries in 8 minutes", s.failed)
		}
		s.failWith(nil)
		p.Renew("orders")
		settle(time.Second)
		if n := len(s.all()); n != 1 {
			t.Errorf("%d are open", n)
		}
	})
}

// A server that takes connections and ends them at once is no better.
func TestConnectionsThatEndAtOnceBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 1, ever())
		p.Take(t.Context(), of("cart"))
		for range 8 * 60 {
			settle(time.Second)
			for _, c := range s.all() {
				c.drop()
			}
		}
		if s.opened < 8 || s.opened > 25 {
			t.Errorf("%d were opened in 8 minutes", s.opened)
		}
	})
}

// Namespaces share what is allowed: many functions of one leave another its own.
func TestNamespacesShareTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 4, ever())
		for i := range 20 {
			p.Take(t.Context(), of(fmt.Sprint(i)))
		}
		settle(5 * time.Second)
		p.Take(t.Context(), pool.Key{Namespace: "bank", Function: "bank/pay", Destination: "orders"})
		settle(5 * time.Second)
		held := map[string]int{}
		for _, u := range p.Usage() {
			held[u.Namespace] += u.Held
		}
		if held["shop"] != 3 || held["bank"] != 1 {
			t.Errorf("held: %v", held)
		}
	})
}

// A driver's parameters are the program's to choose: it has no more keys by that than a few.
func TestAProgramWithManyParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 100, ever())
		for i := range 100 {
			k := of("cart")
			k.Start = fmt.Sprint(i)
			p.Take(t.Context(), k)
			settle(time.Second)
		}
		if n := len(s.all()); n > 5 {
			t.Errorf("%d are open", n)
		}
	})
}

// Whatever happens in whichever order: no connection is handed out twice, or to another function, or after its end, and
// never are there more than allowed.
func TestHandOversKeepThePromises(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			p, s := rig(time.Duration(random.IntN(200)) * time.Millisecond)
			allowed := 0
			for range 400 {
				switch random.IntN(12) {
				case 0:
					allowed = random.IntN(6)
					p.Allow("orders", allowed, time.Now().Add(time.Duration(random.IntN(100))*time.Second))
					settle(300 * time.Millisecond)
				case 1:
					p.Renew("orders")
				case 2:
					for _, c := range s.all() {
						if random.IntN(3) == 0 && !c.used {
							c.drop()
						}
					}
				default:
					k := of(fmt.Sprint(random.IntN(3)))
					if c, ok := p.Take(t.Context(), k); ok {
						if c.used || c.key != k {
							t.Fatalf("seed %d: %v got %v, used %t", seed, k, c.key, c.used)
						}
						c.used = true
						_ = c.Close()
					}
				}
				if random.IntN(2) == 0 {
					settle(time.Duration(random.IntN(2000)) * time.Millisecond)
				}
				if n := heldOf(p); n > max(allowed, 0) {
					t.Fatalf("seed %d: %d held, %d allowed", seed, n, allowed)
				}
			}
			p.Close()
			if n := len(s.all()); n > 0 {
				t.Fatalf("seed %d: %d stay open", seed, n)
			}
		})
	}
}

// What a driver has said in the end is what the next start is to find, and nothing waits for its beginning.
func TestAStartThatIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(50 * time.Millisecond)
		defer p.Close()
		p.Allow("orders", 4, ever())
		begun, whole := of("cart"), of("cart")
		whole.Start = "SELECT 2"
		if _, ok := p.Take(t.Context(), begun); ok {
			t.Error("the first start got one")
		}
		p.Correct(begun, whole.Start)
		settle(time.Second)
		if all := s.all(); len(all) != 1 || all[0].key != whole {
			t.Errorf("%d connections wait", len(all))
		}
		if _, ok := p.Take(t.Context(), whole); !ok {
			t.Error("the second start got none")
		}
	})
}

func heldOf(p *pool.Pool[*conn]) int { held, _ := p.Held("orders"); return held }

// An allowance that is cut short counts, and so does one that comes after the end of another just like it.
func TestAllowancesThatAreOthersOnlyInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 1, time.Now().Add(time.Minute))
		p.Take(t.Context(), of("cart"))
		for what, want := range []int{1, 0, 1, 1, 0} { // with an allowance, cut short, allowed again, prolonged, at its end
			switch what {
			case 1:
				p.Allow("orders", 1, time.Now().Add(time.Second))
			case 2:
				p.Allow("orders", 1, time.Now().Add(4*time.Second))
			case 3:
				p.Allow("orders", 1, time.Now().Add(4*time.Second))
			}
			if settle(3 * time.Second); len(s.all()) != want {
				t.Errorf("%d: %d are open, want %d", what, len(s.all()), want)
			}
		}
	})
}

// With a destination whose unused connections are of no use none waits, until it is another one.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := rig(time.Millisecond)
		defer p.Close()
		p.Allow("orders", 4, ever())
		p.Take(t.Context(), of("cart"))
		settle(time.Second)
		p.Silence("orders")
		for range 2 {
			settle(time.Second)
			if _, ok := p.Take(t.Context(), of("cart")); ok || len(s.all()) > 0 || len(p.Usage()) > 0 || heldOf(p) > 0 {
				t.Errorf("%d are open, %d held, used: %v", len(s.all()), heldOf(p), p.Usage())
			}
		}
		p.Renew("orders")
		p.Take(t.Context(), of("cart"))
		if settle(time.Second); len(s.all()) != 1 {
			t.Errorf("%d are open", len(s.all()))
		}
	})
}
