package functionapi_test

import (
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// What an instance does for no request is heard, after one that began before its turn: whether that counts, or not.
func TestWorkAfterTheAnswer(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {})
	heard := func(what string, want int64) {
		t.Helper()
		if got := r.late.Swap(0); got != want {
			t.Errorf("%s: heard %d times, want %d", what, got, want)
		}
	}
	for _, end := range []func(*attempt.Attempt){func(a *attempt.Attempt) { _ = a.Adopt() }, func(a *attempt.Attempt) { a.Squash() }} {
		given := attempt.New()
		given.Begin(func() {})
		up := r.Begin("fire-1", sandboxes.Delivery{Request: id(1), Attempt: given})
		given.Squash()
		given.Answered()
		up()
		r.Works("fire-1")
		heard("what is left of a request that it was to give up", 0)
		a := attempt.New()
		a.Begin(func() {})
		answered := r.Begin("fire-1", sandboxes.Delivery{Request: id(1), Attempt: a})
		r.Works("fire-1")
		heard("while it has a request", 0)
		a.Answered()
		answered()
		r.Works("fire-1")
		end(a)
		r.ask("fire-1", http.MethodPost, "/call/fire", nil)
		heard("when it has answered", 2)
		answered = r.Begin("fire-1", sandboxes.Delivery{Request: id(2)})
		r.Works("fire-1")
		answered()
		r.Works("fire-1")
		heard("after a request in its turn", 0)
	}
}

// What a function calls for a request before its turn waits for that turn, also when the function has answered by then. If the turn never
// comes, nothing is called.
func TestCallsWaitForTheTurn(t *testing.T) {
	called := make(chan string, 10)
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) { called <- req.URL.RawQuery })
	calls := func(path string) (answered chan int) {
		answered = make(chan int, 1)
		go func() { answered <- r.ask("fire-1", http.MethodPost, "/call/fire?"+path, nil).StatusCode }()
		return answered
	}
	quiet := func(answered chan int) {
		t.Helper()
		// It is on its way when the next one, of another sandbox, has come through.
		if got := r.ask("fire-2", http.MethodPost, "/call/fire?other", nil); got.StatusCode != http.StatusOK || <-called != "other" {
			t.Errorf("another sandbox's: %d", got.StatusCode)
		}
		select {
		case got := <-answered:
			t.Errorf("a call before its turn is answered with %d", got)
		default:
		}
	}
	for _, answeredBefore := range []bool{false, true} {
		for _, adopted := range []bool{true, false} {
			a := attempt.New()
			a.Begin(func() {})
			end := r.Begin("fire-1", sandboxes.Delivery{Request: id(1), Attempt: a})
			if answeredBefore {
				end()
			}
			answered := calls("early")
			quiet(answered)
			want := http.StatusServiceUnavailable
			if adopted {
				_ = a.Adopt()
				want = http.StatusOK
			} else {
				a.Squash()
			}
			if got := <-answered; got != want {
				t.Errorf("answered before: %t, adopted: %t: the call is answered with %d, want %d", answeredBefore, adopted, got, want)
			}
			if adopted {
				<-called
			}
			if !answeredBefore {
				end()
			}
			if got := <-calls("late"); got != want {
				t.Errorf("answered before: %t, adopted: %t: a later call is answered with %d, want %d", answeredBefore, adopted, got, want)
			}
			if adopted {
				<-called
			}
			end = r.Begin("fire-1", sandboxes.Delivery{Request: id(2)})
			if got := <-calls("turn"); got != http.StatusOK || <-called != "turn" {
				t.Errorf("a call of the next request is answered with %d", got)
			}
			end()
		}
	}
	if len(called) != 0 {
		t.Errorf("%s is called besides", <-called)
	}
}
