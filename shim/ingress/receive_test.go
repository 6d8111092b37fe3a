package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// upload is a body that a client sends at its own pace.
type upload struct {
	content []byte
	*io.PipeReader
	to *io.PipeWriter
}

func newUpload(size int) *upload {
	u := &upload{content: make([]byte, size)}
	_, _ = rand.Read(u.content) // never fails
	u.PipeReader, u.to = io.Pipe()
	return u
}

// send lets the bytes from from to to go.
func (u *upload) send(from, to int) { _, _ = u.to.Write(u.content[from:to]) } // or nobody takes them any more

// rest lets all from from on go, and ends.
func (u *upload) rest(from int) {
	u.send(from, len(u.content))
	_ = u.to.Close()
}

func (u *upload) digest() string { return fmt.Sprintf("%x", sha256.Sum256(u.content)) }

// digests answers with a body's digest, length and trailer.
func digests(w http.ResponseWriter, req *http.Request) {
	sum := sha256.New()
	if _, err := io.Copy(sum, req.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%x %d %s", sum.Sum(nil), req.ContentLength, req.Trailer.Get("X-Part"))
}

// starting has r's instance ready when the gate is opened, and not before.
func starting(r *rig) (open func()) {
	ready := make(chan struct{})
	at := r.instances.address
	r.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
		select {
		case <-ready:
			return at, nil
		case <-ctx.Done():
			return netip.AddrPort{}, ctx.Err()
		}
	}
	return sync.OnceFunc(func() { close(ready) })
}

// answered sends a request, and returns what comes back, or the error.
func answered(c *http.Client, req *http.Request) <-chan string {
	answer := make(chan string, 1)
	go func() {
		resp, err := c.Do(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- string(body)
	}()
	return answer
}

// The function is asked for at the first byte, all are on the node before it is ready, and it
// gets them as if they came straight from the client.
func TestABodyIsTakenWhileTheFunctionStarts(t *testing.T) {
	const size = 5<<20 + 7
	for name, c := range map[string]struct {
		edit   func(*http.Request)
		h2     bool
		length int64
		part   string
	}{
		"of known length":   {edit: func(req *http.Request) { req.ContentLength = size }, length: size},
		"of unknown length": {edit: func(*http.Request) {}, length: -1},
		"with a trailer":    {edit: func(req *http.Request) { req.Trailer = http.Header{"X-Part": {"7"}} }, length: -1, part: "7"},
		"that waits for 100": {edit: func(req *http.Request) {
			req.ContentLength = size
			req.Header.Set("Expect", "100-continue")
		}, length: size},
		"by HTTP/2":                {edit: func(req *http.Request) { req.ContentLength = size }, h2: true, length: size},
		"by HTTP/2, with trailers": {edit: func(req *http.Request) { req.Trailer = http.Header{"X-Part": {"7"}} }, h2: true, length: -1, part: "7"},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", far: ", far), func(t *testing.T) {
				gateway, there := nodes(t, far)
				var seen atomic.Pointer[http.Header]
				function := func(w http.ResponseWriter, req *http.Request) {
					seen.Store(&req.Header)
					digests(w, req)
				}
				client := gateway.gateway
				if c.h2 {
					there.instances.runH2(t, function)
					client = gatewayH2(t, gateway.Gateway())
				} else {
					there.instances.run(t, function)
				}
				ready := starting(there)
				defer ready()
				u, id := newUpload(size), newID()
				req := request(t, "POST", withBody, id, "", u)
				c.edit(req)
				answer := answered(client, req)
				u.send(0, 1)
				eventually(t, "the function is asked for", func() bool { return gateway.cp.holds(withBody) == 1 && gateway.cp.activations() == 1 })
				u.rest(1)
				eventually(t, "all is there", func() bool { return there.buffer.Used() == size && gateway.buffer.Used() == size })
				if seen.Load() != nil {
					t.Error("the function has it before it is ready")
				}
				ready()
				if got, want := <-answer, fmt.Sprintf("%s %d %s", u.digest(), c.length, c.part); got != want {
					t.Errorf("it is answered\n%s, want\n%s", got, want)
				}
				if h := *seen.Load(); h.Get("Expect") != "" || h.Get("X-Headstart-Progress") != "" || h.Get("X-Headstart-Request") != id || h.Get("X-Headstart-Input-File") != "" {
					t.Errorf("the function sees %v", h)
				}
			})
		}
	}
}

// nodes are the gateway's and the instance's, which may be the same.
func nodes(t *testing.T, far bool) (gateway, there *rig) {
	if far {
		p := newPair(t, nil)
		return p.gateway, p.target
	}
	r := newRig(t, nil)
	return r, r
}

// A function that is ready gets a body as it comes, also one that never stands in the
// buffer as a whole.
func TestABodyFollowsItsSender(t *testing.T) {
	for _, far := range []bool{false, true} {
		gateway, there := nodes(t, far)
		there.instances.run(t, func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(http.StatusOK)
			part := make([]byte, 4)
			for {
				if _, err := io.ReadFull(req.Body, part); err != nil {
					return
				}
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush()
			}
		})
		u := newUpload(64)
		answer := make(chan *http.Response, 1)
		go func() { answer <- do(t, gateway.gateway, request(t, "POST", withBody, newID(), "", u)) }()
		u.send(0, 4)
		resp := <-answer
		part := make([]byte, 4)
		for at := 4; at <= len(u.content); at += 4 {
			if _, err := io.ReadFull(resp.Body, part); err != nil || !bytes.Equal(part, u.content[at-4:at]) {
				t.Fatalf("far %t, at %d: %x, %v", far, at, part, err)
			}
			u.send(at, min(at+4, len(u.content)))
		}
		_ = u.to.Close()
		if got := read(t, resp.Body); got != "" {
			t.Errorf("%d bytes more", len(got))
		}
	}
}

// What has no body has nothing to buffer, and what becomes another protocol has no body.
func TestRequestsWithoutABody(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") != "" {
			upgrade(w, req)
			return
		}
		digests(w, req)
	})
	resp := r.do(t, request(t, "GET", withBody, newID(), "", nil))
	if got := read(t, resp.Body); !strings.HasSuffix(got, " 0 ") {
		t.Errorf("the function got %s", got)
	}
	req := upgradeRequest(t, newID())
	req.Header.Set("x-headstart-function", withBody)
	echoes(t, r.do(t, req))
	select {
	case o := <-r.outcomes:
		t.Errorf("something was received: %+v", o)
	default:
	}
}

// A body larger than the function takes is refused before a byte of it, if its length says
// so, or else when it is.
func TestABodyThatIsTooLarge(t *testing.T) {
	t.Run("by its length", func(t *testing.T) {
		r := newRig(t, nil)
		req := request(t, "POST", withBody, newID(), "", io.LimitReader(rand.Reader, inputLimit+1))
		req.ContentLength = inputLimit + 1
		req.Header.Set("Expect", "100-continue")
		wantProblem(t, r.do(t, req), http.StatusRequestEntityTooLarge, "InputTooLarge", "headstart.dev/input-limit")
		if r.cp.activations() != 0 {
			t.Error("the function is started for it")
		}
	})
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprint("while the function starts, far: ", far), func(t *testing.T) {
			gateway, there := nodes(t, far)
			there.instances.ready = neverReady
			resp := gateway.do(t, request(t, "POST", withBody, newID(), "", io.LimitReader(rand.Reader, inputLimit+1)))
			wantProblem(t, resp, http.StatusRequestEntityTooLarge, "InputTooLarge", "headstart.dev/input-limit")
		})
		t.Run(fmt.Sprint("while the function reads, far: ", far), func(t *testing.T) {
			gateway, there := nodes(t, far)
			there.instances.run(t, digests)
			resp := gateway.do(t, request(t, "POST", withBody, newID(), "", io.LimitReader(rand.Reader, inputLimit+1)))
			wantProblem(t, resp, http.StatusRequestEntityTooLarge, "InputTooLarge", "headstart.dev/input-limit")
		})
	}
}

// occupied leaves free bytes of the node's buffer.
func (r *rig) occupied(t *testing.T, free int64) (release func()) {
	t.Helper()
	e, err := r.buffer.Create(newID(), "default/other", bufferLimit-free)
	if err != nil {
		t.Fatal(err)
	}
	return e.Release
}

// Without room in the buffer a body waits with its client, but for a little, and reaches the
// function all the same.
func TestABodyThatFindsNoRoom(t *testing.T) {
	const size = 7 << 20
	for name, c := range map[string]struct {
		length int64
		free   int64
	}{
		"of known length": {length: size, free: size - 1},
		"no room at all":  {length: -1, free: 0},
		"room for a part": {length: -1, free: 3<<20 + 5},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", far: ", far), func(t *testing.T) {
				gateway, there := nodes(t, far)
				there.instances.run(t, digests)
				ready := starting(there)
				defer ready()
				defer gateway.occupied(t, c.free)()
				if far {
					defer there.occupied(t, c.free)()
				}
				id, u := newID(), &metered{from: bytes.NewReader(newUpload(size).content)}
				want := u.digest(t)
				req := request(t, "POST", withBody, id, "", u)
				req.ContentLength = c.length
				answer := answered(gateway.gateway, req)
				eventually(t, "it waits", func() bool { return there.cp.holds(withBody) == 1 })
				if c.length < 0 {
					eventually(t, "there is no more room", func() bool { return u.n.Load() >= c.free })
				}
				ready()
				if got := <-answer; got != fmt.Sprint(want, " ", c.length, " ") {
					t.Errorf("it is answered %s", got)
				}
				waitTrace(t, id, map[bool]int{false: 1, true: 2}[far])
				if got := attributes(named(t, id, tracing.Activation, 0))[tracing.Degraded]; got != "BodyNotBuffered" {
					t.Errorf("degraded is %q", got)
				}
			})
		}
	}
}

// metered counts what the client has got rid of.
type metered struct {
	from *bytes.Reader
	n    atomic.Int64
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *metered) digest(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	if _, err := c.from.WriteTo(sum); err != nil {
		t.Fatal(err)
	}
	_, _ = c.from.Seek(0, io.SeekStart) // never fails
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// Of a client that goes on sending to a full buffer no more than 1 MiB is held.
func TestAFullBufferStopsTheSender(t *testing.T) {
	const free, outside = 2 << 20, 1 << 20
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			gateway := r.gateway
			if h2 {
				r.instances.runH2(t, digests)
				gateway = gatewayH2(t, r.Gateway())
			} else {
				r.instances.run(t, digests)
			}
			ready := starting(r)
			defer ready()
			defer r.occupied(t, free)()
			u := &metered{from: bytes.NewReader(newUpload(7 << 20).content)}
			want := u.digest(t)
			req := request(t, "POST", withBody, newID(), "", u)
			req.ContentLength = -1
			answer := answered(gateway, req)
			<-r.outcomes // the way into the buffer has ended
			// Until it sends no more while others come and go.
			for before, still := int64(0), 0; still < 20; still++ {
				if n := u.n.Load(); n != before {
					before, still = n, 0
				}
				wantProblem(t, do(t, gateway, request(t, "GET", "default/none", newID(), "", nil)), http.StatusNotFound, "FunctionUnknown", "")
			}
			if held := u.n.Load() - free; held > outside {
				t.Errorf("%d bytes are held", held)
			}
			ready()
			if got := <-answer; got != want+" -1 " {
				t.Errorf("it is answered %s", got)
			}
		})
	}
}

// Wherever a client breaks off, nothing of its request is left, on no node.
func TestAClientThatBreaksOff(t *testing.T) {
	const size = 1 << 20
	for _, far := range []bool{false, true} {
		for _, ready := range []bool{false, true} {
			for _, length := range []int64{-1, size} {
				gateway, there := nodes(t, far)
				there.instances.run(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) })
				if !ready {
					there.instances.ready = neverReady
				}
				for _, sent := range []int{0, 1, mathrand.IntN(size), mathrand.IntN(size), size - 1, size} {
					u := newUpload(size)
					ctx, leave := context.WithCancel(t.Context())
					req := request(t, "POST", withBody, newID(), "", u).WithContext(ctx)
					req.ContentLength = length
					answer := answered(gateway.gateway, req)
					u.send(0, sent)
					eventually(t, "it is in the node's hands", func() bool { return gateway.cp.holds(withBody) == 1 })
					leave()
					_ = u.CloseWithError(context.Canceled)
					// With all of a known length the function may have been quicker.
					whole := ready && length == size && sent == size
					if got := <-answer; !strings.Contains(got, "cancel") && !strings.Contains(got, "closed pipe") && (!whole || got != "") {
						t.Errorf("far %t, ready %t, after %d of %d: it is answered %q", far, ready, sent, length, got)
					}
					for _, r := range []*rig{gateway, there} {
						eventually(t, "nothing is held", func() bool { return r.cp.holds(withBody) == 0 && r.buffer.Used() == 0 })
						if told := r.cp.told(); told != nil {
							t.Errorf("the operator is told %v", told)
						}
					}
				}
			}
		}
	}
}

// A function that answers without its request's body is believed, and the body is let go.
func TestAFunctionThatDoesNotWantTheBody(t *testing.T) {
	for _, far := range []bool{false, true} {
		gateway, there := nodes(t, far)
		there.instances.run(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no, thanks") })
		u := newUpload(1 << 20)
		answer := answered(gateway.gateway, request(t, "POST", withBody, newID(), "", u))
		u.send(0, 1000)
		if got := <-answer; got != "no, thanks" {
			t.Errorf("it is answered %q", got)
		}
		_ = u.to.Close()
	}
}

// enough is less than a node gives a client to read its answer: net/http's half second.
const enough = 400 * time.Millisecond

// A client that still sends when the answer comes finds the connection whole, and so reads the
// answer: until it has, nothing breaks under its hands.
func TestAnEarlyAnswerIsNotLost(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no, thanks") })
	socket := serveUnix(t, r.Gateway())
	for range 20 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(soon))
		began := time.Now()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nx-headstart-function: "+withBody+"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c) // to the end of what the node has to say
		_, broken := io.WriteString(c, "4\r\nmore\r\n")
		if !bytes.Contains(answer, []byte("no, thanks")) || err != nil {
			t.Errorf("it is answered %q, %v", answer, err)
		}
		// A test that is held up for longer than the node waits has seen nothing.
		if broken != nil && time.Since(began) < enough {
			t.Errorf("the client's body: %v", broken)
		}
		_ = c.Close()
	}
}

// What a client sends after an answer that came before the end of its body is no request,
// whatever it looks like: the gateway has not seen it.
func TestNoRequestIsHiddenInABody(t *testing.T) {
	var calls atomic.Int32
	for _, function := range []string{withBody, withoutInput} {
		for _, answer := range []string{"early", "failed"} {
			for _, framing := range []string{"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", "Content-Length: 1000\r\n\r\nfirst"} {
				gateway, there := nodes(t, false)
				there.instances.run(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); _, _ = io.WriteString(w, "answer") })
				if answer == "failed" {
					there.instances.ready = failReady
				}
				calls.Store(0)
				c, err := net.Dial("unix", serveUnix(t, gateway.Gateway()))
				if err != nil {
					t.Fatal(err)
				}
				hidden := "GET /hidden HTTP/1.1\r\nHost: a\r\nx-headstart-function: " + withoutInput + "\r\n\r\n"
				if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nx-headstart-function: "+function+"\r\n"+framing); err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(soon))
				from := bufio.NewReader(c)
				resp, err := http.ReadResponse(from, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = read(t, resp.Body)
				_, _ = io.WriteString(c, hidden) // it may be closed by now
				_ = c.(*net.UnixConn).CloseWrite()
				if more, _ := io.ReadAll(from); len(more) > 0 || !resp.Close || calls.Load() > 1 {
					t.Errorf("%s, %s, %.20s: after %d comes %q; %d calls", function, answer, framing, resp.StatusCode, more, calls.Load())
				}
				_ = c.Close()
			}
		}
	}
}

// A body of any size that nobody got is sent again from the buffer: the instance is gone, its
// daemon ends, or the node with it.
func TestABodyIsPlacedAgain(t *testing.T) {
	const size = 5 << 20
	for name, lose := range map[string]func(p *pair){
		"instance gone": func(p *pair) { p.target.instances.ready = failGone },
		"daemon ends": func(p *pair) {
			p.target.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
				go p.target.Close()
				return netip.AddrPort{}, hang(ctx)
			}
		},
		"node dies": func(p *pair) {
			p.target.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
				go p.server.CloseClientConnections()
				return netip.AddrPort{}, hang(ctx)
			}
		},
	} {
		for _, length := range []int64{size, -1} {
			for _, late := range []bool{false, true} { // the body has come when the target is lost, or most of it comes later
				t.Run(fmt.Sprint(name, ", ", length, " bytes, late: ", late), func(t *testing.T) {
					p := newPair(t, abort)
					p.gateway.instances.run(t, digests)
					away, _ := p.gateway.cp.activate(t.Context(), nil)
					again := make(chan struct{})
					bind := first(away)
					p.gateway.cp.activate = func(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
						b, err := bind(ctx, a)
						if b.GetPeerAddress() == "" {
							close(again)
						}
						return b, err
					}
					lose(p)
					lost, all := p.target.instances.ready, make(chan struct{})
					p.target.instances.ready = func(ctx context.Context, id string) (netip.AddrPort, error) {
						select {
						case <-all:
							return lost(ctx, id)
						case <-ctx.Done():
							return netip.AddrPort{}, ctx.Err()
						}
					}
					u := newUpload(size)
					req := request(t, "POST", withBody, newID(), "", u)
					req.ContentLength = length
					answer := answered(p.gateway.gateway, req)
					if late {
						u.send(0, size/2)
						eventually(t, "half is there", func() bool { return p.target.buffer.Used() >= size/2 })
						<-p.parked
						close(all)
						<-again
						u.rest(size / 2)
					} else {
						u.rest(0)
						eventually(t, "all is there", func() bool { return p.target.buffer.Used() == size })
						<-p.parked
						close(all)
					}
					if got, want := <-answer, fmt.Sprint(u.digest(), " ", length, " "); got != want {
						t.Errorf("it is answered %s, want %s; %s", got, want, p.gateway.logs)
					}
					if told := p.gateway.cp.told(); told != nil {
						t.Errorf("the operator is told %v", told)
					}
				})
			}
		}
	}
}

// Once a function may have a request, no other gets it, and neither when its node only says
// nothing any more.
func TestARequestThatMayBeDeliveredIsNotPlacedAgain(t *testing.T) {
	t.Run("its node dies", func(t *testing.T) {
		var p *pair
		p = newPair(t, func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // or it would not see its caller go
			go p.server.CloseClientConnections()
			_ = hang(req.Context())
		})
		p.gateway.instances.run(t, digests)
		away, _ := p.gateway.cp.activate(t.Context(), nil)
		p.gateway.cp.activate = first(away)
		resp := p.gateway.do(t, request(t, "POST", withBody, newID(), "", strings.NewReader("body")))
		wantProblem(t, resp, http.StatusBadGateway, "PeerUnreachable", "")
	})
	for name, c := range map[string]struct {
		says []string
		err  error
		want int // times that it is placed
	}{
		"ended while it parked":   {[]string{"parked"}, io.EOF, 2},
		"silent while it parked":  {[]string{"parked"}, timeout{}, 1},
		"ended while delivering":  {[]string{"parked", "delivering"}, io.EOF, 1},
		"ended without a word":    {nil, io.EOF, 2},
		"silent without a word":   {nil, timeout{}, 1},
		"ended after other words": {[]string{"?"}, io.EOF, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newNode(t, roundTripper(func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				for _, word := range c.says {
					if err := trace.Got1xxResponse(http.StatusProcessing, map[string][]string{"X-Headstart-Progress": {word}}); err != nil {
						t.Error(err)
					}
				}
				return nil, c.err
			}))
			r.instances.run(t, digests)
			r.cp.activate = first(&nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"})
			gateway := unixClient(t, serveUnix(t, r.Gateway()))
			resp := do(t, gateway, request(t, "POST", withBody, newID(), "", strings.NewReader("body")))
			if want := map[int]int{1: http.StatusBadGateway, 2: http.StatusOK}[c.want]; resp.StatusCode != want || r.cp.activations() != c.want {
				t.Errorf("it is answered %d after %d placements", resp.StatusCode, r.cp.activations())
			}
		})
	}
}

// timeout is the error of a connection whose other side acknowledges nothing.
type timeout struct{}

func (timeout) Error() string   { return "connection timed out" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return false }

// What daemons tell each other on the way stays between them; what a function tells does not.
func TestWordsBeforeTheAnswer(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		digests(w, req)
	})
	var words []int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		words = append(words, code)
		if len(h["X-Headstart-Progress"]) > 0 {
			t.Errorf("%d says %v", code, h)
		}
		return nil
	}})
	drained := make(chan struct{})
	go func() { p.gateway.Drain(t.Context()); close(drained) }()
	<-drained
	resp := p.gateway.do(t, request(t, "POST", withBody, newID(), "", strings.NewReader("body")).WithContext(ctx))
	if read(t, resp.Body); !slices.Equal(words, []int{http.StatusEarlyHints}) {
		t.Errorf("the client hears %v", words)
	}
	if !resp.Close || resp.Header.Get("X-Headstart-Progress") != "" {
		t.Errorf("what the node itself says is lost: %v, %t", resp.Header, resp.Close)
	}
}

// Another autoscaler gets the body as it comes, whenever it reads it.
func TestABodyIsRelayed(t *testing.T) {
	r := newRig(t, nil)
	starts := make(chan struct{})
	activator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-starts
		digests(w, req)
	}))
	t.Cleanup(activator.Close)
	r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{RelayAddress: activator.Listener.Addr().String(), RelayHeaders: map[string]string{"a": "b"}}, nil
	}
	id, u := newID(), newUpload(5<<20)
	answer := answered(r.gateway, request(t, "POST", withBody, id, "", u))
	u.rest(0)
	<-r.outcomes // all is in the buffer
	close(starts)
	if got := <-answer; got != u.digest()+" -1 " {
		t.Errorf("it is answered %s", got)
	}
	waitTrace(t, id, 1)
	named(t, id, tracing.Receive, 0)
	named(t, id, tracing.Relay, 0)
}

// The body's way is a span on each node that it comes to.
func TestTraceOfABody(t *testing.T) {
	p := newPair(t, digests)
	id := newID()
	p.gateway.do(t, request(t, "POST", withBody, id, "", strings.NewReader("the body")))
	waitTrace(t, id, 2)
	for nth := range 2 {
		s := named(t, id, tracing.Receive, nth)
		if got := attributes(s); got[tracing.InputScheme] != "body" || got[tracing.InputBytes] != "8" || len(got) != 2 {
			t.Errorf("receive has %v", got)
		}
		if parent := s.Parent().SpanID(); parent != named(t, id, tracing.Activation, 0).SpanContext().SpanID() && parent != named(t, id, tracing.Activation, 1).SpanContext().SpanID() {
			t.Errorf("receive is below %v", parent)
		}
	}
	for nth := range 2 {
		if got, ok := attributes(named(t, id, tracing.Activation, nth))[tracing.Degraded]; ok {
			t.Errorf("degraded is %s", got)
		}
	}
}

// Many bodies at once never mix.
func TestManyBodies(t *testing.T) {
	p := newPair(t, digests)
	var g sync.WaitGroup
	for n := range 100 {
		g.Go(func() {
			u := newUpload(10_000 + n)
			go u.rest(0)
			if got := <-answered(p.gateway.gateway, request(t, "POST", withBody, newID(), "", u)); got != u.digest()+" -1 " {
				t.Errorf("it is answered %s", got)
			}
		})
	}
	g.Wait()
}

// A client that stands still keeps nothing beyond the deadlines of its request.
func TestDeadlinesOfABody(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*rig)
		waited  time.Duration
		title   string
	}{
		"no instance": {func(r *rig) { r.instances.ready = unready }, readyTimeout + ingress.Grace, "ReadyTimeout"},
		"no more of the body": {func(r *rig) {
			r.Relays(roundTripper(func(req *http.Request) (*http.Response, error) {
				_, err := io.Copy(io.Discard, req.Body)
				return nil, errors.Join(err, req.Context().Err())
			}))
			r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
				return &nodeapi.Bound{RelayAddress: "192.0.2.1:1", RelayHeaders: map[string]string{"a": "b"}}, nil
			}
		}, readyTimeout + ingress.Grace + soon, "FunctionTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newNode(t, nil)
				r.changeUpload(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(readyTimeout) })
				c.prepare(r)
				from, _ := io.Pipe()
				w := &interruptible{ResponseRecorder: httptest.NewRecorder(), body: from}
				req := request(t, "POST", withBody, newID(), "", from)
				req.ContentLength = -1
				began := time.Now()
				r.Gateway().ServeHTTP(w, req)
				if waited := time.Since(began); waited != c.waited {
					t.Errorf("it waited %v, want %v", waited, c.waited)
				}
				if got := w.Body.String(); w.Code != http.StatusGatewayTimeout || !strings.Contains(got, c.title) {
					t.Errorf("it is answered %d %s", w.Code, got)
				}
			})
		})
	}
}

// interruptible is a client whose body ends when the server stops to read it.
type interruptible struct {
	*httptest.ResponseRecorder
	body *io.PipeReader
}

func (i *interruptible) SetReadDeadline(time.Time) error {
	return i.body.CloseWithError(errors.New("deadline"))
}
