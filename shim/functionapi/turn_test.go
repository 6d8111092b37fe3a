package functionapi_test

import (
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

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
