package ingress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/attempt"
	calls "github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// attempted is a request before its turn.
type attempted struct {
	*attempt.Attempt
	answered chan calls.Answer
}

// ahead has the node's instance work on a request before its turn.
func (r *rig) ahead(t *testing.T) attempted {
	t.Helper()
	e := attempted{attempt.New(), make(chan calls.Answer, 1)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("early"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(filterapi.HeaderFunction, oneAtATime)
	go func() { e.answered <- r.Ahead(e.Attempt, req, calls.Keep{Most: 1 << 10}) }()
	return e
}

// function answers when it is told to, or when its request is given up.
type function struct{ began, end, gone chan string }

func newFunction() *function {
	return &function{make(chan string, 10), make(chan string), make(chan string, 10)}
}

func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	f.began <- string(b)
	select {
	case said := <-f.end:
		_, _ = io.WriteString(w, said)
	case <-r.Context().Done():
		f.gone <- string(b)
	}
}

// one sends a request in its turn.
func (r *rig) one(t *testing.T, body string) (answered chan string) {
	t.Helper()
	answered = make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://gateway/", strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header.Set(filterapi.HeaderFunction, oneAtATime)
		res, err := r.gateway.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answered <- string(b) + errorText(err)
	}()
	return answered
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A request whose turn comes while the instance works on it is a request like others. While it does, the instance gets no other.
func TestAnAttemptThatIsAdopted(t *testing.T) {
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	e := r.ahead(t)
	if got := <-f.began; got != "early" || e.Adopt() != nil {
		t.Fatalf("the function gets %q", got)
	}
	later := r.one(t, "later")
	f.end <- "answer"
	if a := <-e.answered; a.Failed != nil || string(a.Body) != "answer" {
		t.Errorf("%+v", a)
	}
	if got := <-f.began; got != "later" {
		t.Errorf("the function gets %q", got)
	}
	f.end <- "another"
	if got := <-later; got != "another" || r.instances.wasReplaced() {
		t.Errorf("%q", got)
	}
	r.cp.mu.Lock()
	defer r.cp.mu.Unlock()
	for _, asked := range r.cp.asked {
		if !asked.GetMore() {
			t.Errorf("the control plane is asked: %v", asked)
		}
	}
}

// A squashed attempt is answered at once. Its program hears of that, and when it has ended, its instance takes the next request.
func TestAnAttemptThatIsSquashed(t *testing.T) {
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	e := r.ahead(t)
	<-f.began
	e.Squash()
	if a := <-e.answered; !errors.Is(a.Failed, attempt.ErrSquashed) {
		t.Errorf("%+v", a)
	}
	if got := <-f.gone; got != "early" {
		t.Errorf("%q", got)
	}
	next := r.one(t, "next")
	if got := <-f.began; got != "next" {
		t.Errorf("the function gets %q", got)
	}
	f.end <- "answer"
	if got := <-next; got != "answer" || r.instances.wasReplaced() {
		t.Errorf("%q, replaced: %t", got, r.instances.wasReplaced())
	}
	if len(r.cp.told()) != 0 {
		t.Errorf("the operator is told %s", r.cp.told())
	}
}

// An attempt that is squashed when its program has answered does nothing to the connection, which is the next request's.
func TestAnAttemptThatIsSquashedLate(t *testing.T) {
	began, end := make(chan string), make(chan struct{})
	r := newRig(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- r.RemoteAddr
		<-end
	})
	r.KeepAtOnce()
	e := r.ahead(t)
	first := <-began
	end <- struct{}{}
	if a := <-e.answered; a.Failed != nil {
		t.Fatal(a.Failed)
	}
	for range 2 {
		next := r.one(t, "next")
		if from := <-began; from != first {
			t.Errorf("the function gets it by %s, and not by %s", from, first)
		}
		if !e.Squash() {
			t.Fatal("it is not squashed")
		}
		end <- struct{}{}
		if got := <-next; got != "" || r.instances.wasReplaced() {
			t.Errorf("%q, replaced: %t", got, r.instances.wasReplaced())
		}
	}
}

// A request in its turn squashes one before its turn to have the instance.
func TestARequestInItsTurnGoesFirst(t *testing.T) {
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	e := r.ahead(t)
	<-f.began
	now := r.one(t, "now")
	if a := <-e.answered; a.Failed == nil {
		t.Errorf("%+v", a)
	}
	if got := <-f.began; got != "now" {
		t.Errorf("the function gets %q", got)
	}
	f.end <- "answer"
	if got := <-now; got != "answer" {
		t.Error(got)
	}
}

// When a request in its turn waits for an instance that is free, there are to be more of them, once there are processors to start them.
func TestARequestInItsTurnAsksForMore(t *testing.T) {
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	var looks atomic.Int32
	r.busy = func() float64 {
		if looks.Add(1) == 1 {
			return 0.8
		}
		return 0.79
	}
	first := r.one(t, "first")
	<-f.began
	second := r.one(t, "second")
	eventually(t, "another instance is asked for", func() bool {
		r.cp.mu.Lock()
		defer r.cp.mu.Unlock()
		return slices.ContainsFunc(r.cp.asked, (*nodeapi.Activate).GetMore)
	})
	if looks.Load() < 2 {
		t.Error("it is asked for while the processors are busy")
	}
	f.end <- "answer"
	<-f.began
	f.end <- "another"
	if one, two := <-first, <-second; one != "answer" || two != "another" {
		t.Errorf("%q, %q", one, two)
	}
}

// A request that has waited for long gets another instance although others keep the processors busy.
func TestARequestDoesNotWaitForProcessorsForEver(t *testing.T) {
	t.Parallel()
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	r.busy = func() float64 { return 1 }
	first := r.one(t, "first")
	<-f.began
	began, second := time.Now(), r.one(t, "second")
	eventually(t, "another instance is asked for", func() bool {
		r.cp.mu.Lock()
		defer r.cp.mu.Unlock()
		return slices.ContainsFunc(r.cp.asked, (*nodeapi.Activate).GetMore)
	})
	if waited := time.Since(began); waited < 3*time.Second {
		t.Errorf("it is asked for after %s", waited)
	}
	f.end <- "answer"
	<-f.began
	f.end <- "another"
	<-first
	<-second
}

// A program that ends the connection of a squashed attempt without an answer may work on: its instance is replaced.
func TestAProgramThatMayWorkOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		if _, err := http.ReadRequest(in); err != nil {
			t.Error(err)
		}
		close(began)
		_, _ = io.Copy(io.Discard, in) // until the half of the connection is closed
	}()
	r := newRig(t, nil)
	r.instances.address = netip.MustParseAddrPort(l.Addr().String())
	e := r.ahead(t)
	<-began
	e.Squash()
	<-e.answered
	<-ended
	eventually(t, "it is replaced", r.instances.wasReplaced)
}

// Attempts that wait for an instance go when they are squashed, and when the node goes.
func TestAttemptsThatWait(t *testing.T) {
	f := newFunction()
	r := newRig(t, f.ServeHTTP)
	works := r.ahead(t)
	<-f.began
	waits, left := r.ahead(t), r.ahead(t)
	waits.Squash()
	if a := <-waits.answered; a.Failed == nil {
		t.Errorf("%+v", a)
	}
	r.Close()
	for _, e := range []attempted{works, left} {
		if a := <-e.answered; a.Failed == nil {
			t.Errorf("%+v", a)
		}
	}
}
