package call

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// Answer is what has come of a request.
type Answer struct {
	Status int
	Header http.Header
	// Body is what was kept of it; Cut: there was more.
	Body []byte
	Cut  bool
	// Failed is why there is no answer, or why it broke off, as this node says it; nil: there is one, perhaps with the words of
	// another node.
	Failed *problem.Problem
}

// Keep says how much of an answer's body is kept.
type Keep struct {
	// Most is the number of bytes. Whole: all of the answer is waited for, although there are more.
	Most  int
	Whole bool
	// Grow is asked for room for so many bytes more; nil: there is room. With an error the answer is given up, and Failed with it;
	// with ErrUnwanted its rest is still waited for.
	Grow func(bytes int) error
}

// ErrUnwanted is of answers that nobody wants any more.
var ErrUnwanted = errors.New("nobody wants the answer")

// Do sends a request to the ingress of the node, and waits for its answer.
func Do(ingress http.Handler, r *http.Request, keep Keep) Answer {
	w := &recorder{Answer: Answer{Header: http.Header{}}, keep: keep}
	if broken := served(ingress, w, r); broken != nil && w.Answer.Failed == nil && (keep.Whole || !w.Cut) {
		w.Answer.Failed = broken
	}
	if w.Status == 0 {
		w.Status = http.StatusOK // net/http's own default
	}
	return w.Answer
}

// hopByHop are headers that are for the next hop alone (RFC 9110, section 7.6.1), which is a server here, and not the author's.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Upgrade"}

// errSwitches is why there is no answer from a server that speaks something else from now on: its body may have no end.
var errSwitches = errors.New("the server switches to another protocol")

// Send sends a request to a server that is no function, and waits for its answer. What only nodes and gateways say it does not say.
func Send(to http.RoundTripper, r *http.Request, keep Keep) Answer {
	clean(r.Header)
	for _, name := range hopByHop {
		r.Header.Del(name)
	}
	w := &recorder{Answer: Answer{Header: http.Header{}}, keep: keep}
	resp, err := to.RoundTrip(r)
	if err == nil {
		defer resp.Body.Close()
		w.Answer.Header, w.Status = resp.Header, resp.StatusCode
		if err = errSwitches; w.Status >= http.StatusOK {
			_, err = io.Copy(w, resp.Body)
		}
	}
	if err != nil && w.Answer.Failed == nil && !w.Cut {
		w.Answer.Failed = problem.New(http.StatusBadGateway, "DestinationFailed", "",
			fmt.Sprintf("the server %.100q is not reached, or its answer broke off", r.URL.Host))
	}
	return w.Answer
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	Answer
	keep Keep
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.Answer.Header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.Status == 0 && status >= http.StatusOK { // the others only announce it
		w.Status = status
	}
}

var errCut = errors.New("no more of the answer is wanted")

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	fits := max(0, min(len(p), w.keep.Most-len(w.Body)))
	if w.keep.Grow != nil && fits > 0 {
		switch err := w.keep.Grow(fits); {
		case errors.Is(err, ErrUnwanted):
			w.Cut, w.keep = true, Keep{Whole: true}
			return len(p), nil
		case err != nil:
			w.Failed(err)
			return 0, err
		}
	}
	w.Body = append(w.Body, p[:fits]...)
	w.Cut = w.Cut || fits < len(p)
	if w.Cut && !w.keep.Whole {
		return fits, errCut
	}
	return len(p), nil
}

// Flush implements http.Flusher: there is nothing that could wait.
func (w *recorder) Flush() {}

// Failed takes why there is no answer, or why it ends early: ingress says it, ahead of its panic.
func (w *recorder) Failed(why error) { w.Answer.Failed = problem.Of(why) }

// served has a handler answer, as a server does: a panic is the end of one request, by
// which handlers also say that an answer is not whole.
func served(h http.Handler, w http.ResponseWriter, r *http.Request) (broken *problem.Problem) {
	defer func() {
		switch e := recover(); {
		case e == http.ErrAbortHandler:
			broken = problem.New(
				http.StatusBadGateway, problem.ReasonFunctionFailed, "", "the function's answer broke off",
			)
		case e != nil:
			broken = problem.Of(fmt.Errorf("panic: %v\n%s", e, debug.Stack()))
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}
