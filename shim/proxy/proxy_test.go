package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headstart-mesh/headstart/shim/proxy"
)

// sends returns a server that sends what it gets to via, and the error of what it was sent last.
func sends(t *testing.T, via http.RoundTripper, accept func(*http.Response) error) (at string, failed <-chan error) {
	t.Helper()
	errs := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := proxy.NewBody(w, r)
		defer body.Leave()
		err := proxy.Send(r.Context(), w, r, proxy.Hop{Via: via, Body: body, Accept: accept,
			Prepare: func(out *http.Request) { out.URL.Scheme, out.URL.Host = "http", out.Header.Get("to") },
			Explain: func(err error, midway bool) error { return explained{err, midway} },
		})
		errs <- err
		if err != nil && !proxy.IsBroken(err) {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, errs
}

// explained is what a user of the package makes of a failure.
type explained struct {
	error
	midway bool
}

func (e explained) Unwrap() error { return e.error }

// Whoever sends a request learns who has failed, and whether the answer had begun.
func TestWhoHasFailed(t *testing.T) {
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", "20")
		_, _ = w.Write(got)
		if len(got) < 20 {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(function.Close)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	errRefused := errors.New("the answer is none")
	there := function.Listener.Addr().String()
	for name, c := range map[string]struct {
		to, body      string
		accept        error
		fails, midway bool
		dial          bool
	}{
		"nobody fails":         {to: there, body: "01234567890123456789"},
		"nobody is there":      {to: nobody.Addr().String(), fails: true, dial: true},
		"the answer is broken": {to: there, body: "0123456789", fails: true, midway: true},
		"it is not accepted":   {to: there, body: "01234567890123456789", accept: errRefused, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			at, failed := sends(t, proxy.NewTransport(), func(*http.Response) error { return c.accept })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("to", c.to)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			err = <-failed
			said, is := errors.AsType[explained](err)
			if is != c.fails || said.midway != c.midway || proxy.IsBroken(err) != c.midway || proxy.IsDial(err) != c.dial ||
				c.accept != nil && !errors.Is(err, c.accept) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections() // the test's own
}

// away is a body in a buffer that cannot be reached any more when somebody has got its first bytes.
type away struct {
	proxy.Stored
	got chan struct{}
}

func (a away) NewReader(context.Context) (io.ReadCloser, error) {
	gone := iotest.ErrReader(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	return io.NopCloser(io.MultiReader(strings.NewReader("first"), after(func() { <-a.got }), gone)), nil
}
func (away) Ended() time.Time { return time.Time{} }

// A connection that does not come about on the way to the body does not say that nobody has got the
// request.
func TestABufferThatIsAwayIsNotTheOtherSide(t *testing.T) {
	buffer := away{got: make(chan struct{})}
	function := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(buffer.got)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(function.Close)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, function.URL, strings.NewReader("first and last"))
	body := proxy.NewBody(w, r)
	defer body.Leave()
	body.Store(buffer)
	via := proxy.NewTransport()
	err := proxy.Send(t.Context(), w, r, proxy.Hop{Via: via, Body: body,
		Prepare: func(out *http.Request) {
			out.URL.Scheme, out.URL.Host = "http", function.Listener.Addr().String()
			out.ContentLength = -1
		},
		Accept:  func(*http.Response) error { return nil },
		Explain: func(err error, midway bool) error { return explained{err, midway} }})
	if !errors.Is(err, syscall.ECONNREFUSED) || proxy.IsDial(err) {
		t.Errorf("of a function that has got it: %v", err)
	}
	if _, of := errors.AsType[explained](err); of {
		t.Errorf("the other side is blamed: %v", err)
	}
}

// parting is a body in a buffer whose reader, when it is closed, lets the Read under way end first.
type parting struct {
	away
	*io.PipeReader
	ended chan struct{}
}

func (p parting) NewReader(context.Context) (io.ReadCloser, error) { return p, nil }

func (p parting) Close() error {
	err := p.PipeReader.Close()
	<-p.ended
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// A transport closes a body that it still reads when the other side has gone. That Read says nothing
// of the buffer.
func TestABodyThatIsClosedWhileItIsReadIsNotLost(t *testing.T) {
	from, _ := io.Pipe()
	buffer := parting{PipeReader: from, ended: make(chan struct{})}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("a body"))
	body := proxy.NewBody(w, r)
	defer body.Leave()
	body.Store(buffer)
	via := roundTripper(func(req *http.Request) (*http.Response, error) {
		go func() {
			defer close(buffer.ended)
			_, _ = req.Body.Read(make([]byte, 1))
		}()
		return nil, errors.Join(io.ErrUnexpectedEOF, req.Body.Close())
	})
	err := proxy.Send(t.Context(), w, r, proxy.Hop{Via: via, Body: body,
		Prepare: func(*http.Request) {},
		Accept:  func(*http.Response) error { return nil },
		Explain: func(err error, midway bool) error { return explained{err, midway} }})
	if _, of := errors.AsType[explained](err); !of {
		t.Errorf("the buffer is blamed: %v", err)
	}
}

// A host of a peer's URL names its node and address, for whatever address.
func TestAPeersHost(t *testing.T) {
	for address, want := range map[string][3]string{
		"10.0.0.1:9461": {"edge-1", "10.0.0.1", "9461"}, "[fd00::1]:9461": {"edge-1", "fd00::1", "9461"},
	} {
		u := &url.URL{Scheme: "https", Host: proxy.PeerHost("edge-1", address)}
		// As net/http's transport has it dialed.
		node, host, port, err := proxy.SplitPeerHost(net.JoinHostPort(u.Hostname(), u.Port()))
		if got := [3]string{node, host, port}; err != nil || got != want {
			t.Errorf("%s is %q, %v", address, got, err)
		}
	}
	for _, address := range []string{"10.0.0.1", "10.0.0.1:9461"} { // the second without a node
		if _, _, _, err := proxy.SplitPeerHost(address); err == nil {
			t.Errorf("%s is a peer's", address)
		}
	}
}
