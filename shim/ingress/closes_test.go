package ingress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// pause is how much of a body a client sends before it pauses.
const pause = 1000

// atThePause calls then when the function has what the client sent before it paused.
func atThePause(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.ReadFull(req.Body, make([]byte, pause)); err != nil {
			panic(http.ErrAbortHandler)
		}
		then(w, req)
	}
}

// hijacked hands the function's connection to do, and closes it. A server's own way would read
// what is left of the body before.
func hijacked(do func(*net.TCPConn)) http.HandlerFunc {
	return atThePause(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		do(c.(*net.TCPConn))
	})
}

// hangUp is an instance that closes each connection when as much has come by it.
func (i *instances) hangUp(t *testing.T) {
	t.Helper()
	i.address = accepts(t, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, pause)) })
}

// paused sends a request whose client has sent so much of its body, and pauses.
func paused(t *testing.T, gateway *http.Client, function string) (answer <-chan *http.Response, u *upload) {
	t.Helper()
	u = newUpload(2 * pause)
	answers := make(chan *http.Response, 1)
	go func() { answers <- do(t, gateway, request(t, http.MethodPost, function, newID(), "", u)) }()
	u.send(0, pause)
	return answers, u
}

// A function that ends its connection, or its stream, without an answer has failed, however long
// its client takes for the rest of the body.
func TestAFunctionThatClosesIsNotWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		function http.HandlerFunc // nil: it hangs up
		h2       bool
	}{
		"closes":                  {function: hijacked(func(*net.TCPConn) {})},
		"hangs up":                {},
		"resets":                  {function: hijacked(func(c *net.TCPConn) { _ = c.SetLinger(0) })},
		"says half a head":        {function: hijacked(func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 200 O") })},
		"says only that it works": {function: hijacked(func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n") })},
		"ends its stream":         {function: atThePause(abort), h2: true},
		"hangs up on HTTP/2":      {h2: true},
	} {
		for _, function := range []string{withBody, withoutInput} {
			for _, far := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", function, ", far: ", far), func(t *testing.T) {
					t.Parallel() // the connections of each take a while to close
					gateway, there := nodes(t, far)
					client := gateway.gateway
					if c.h2 {
						client = gatewayH2(t, gateway.Gateway())
					}
					switch {
					case c.function == nil:
						there.instances.hangUp(t)
					case c.h2:
						there.instances.runH2(t, c.function)
					default:
						there.instances.run(t, c.function)
					}
					answer, u := paused(t, client, function)
					wantProblem(t, <-answer, http.StatusBadGateway, "FunctionFailed", "")
					u.rest(pause)
					if got := there.cp.told(); !slices.Equal(got, []string{"FunctionFailed"}) || gateway.cp.activations() != 1 {
						t.Errorf("the operator is told %v after %d placements", got, gateway.cp.activations())
					}
				})
			}
		}
	}
}

// What a function has said before it closes arrives, whole or as it broke off.
func TestAnAnswerIsNotLostWithItsConnection(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 5000)
	for name, c := range map[string]struct {
		answer, want string
		status       int
		broken       bool
	}{
		"of known length":   {answer: fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long), want: long, status: http.StatusOK},
		"in chunks":         {answer: fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long), want: long, status: http.StatusOK},
		"until it closes":   {answer: "HTTP/1.1 200 OK\r\n\r\n" + long, want: long, status: http.StatusOK},
		"without a body":    {answer: "HTTP/1.1 204 No Content\r\n\r\n", status: http.StatusNoContent},
		"that breaks off":   {answer: fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 2*len(long), long), want: long, status: http.StatusOK, broken: true},
		"that is a refusal": {answer: "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno.", want: "no.", status: http.StatusRequestEntityTooLarge},
	} {
		for _, function := range []string{withBody, withoutInput} {
			for _, far := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", function, ", far: ", far), func(t *testing.T) {
					t.Parallel() // the connections of each take a while to close
					gateway, there := nodes(t, far)
					there.instances.run(t, hijacked(func(conn *net.TCPConn) {
						_, _ = io.WriteString(conn, c.answer)
						_ = conn.CloseWrite()
						_, _ = io.Copy(io.Discard, conn) // it goes on taking the body
					}))
					for range 5 {
						answer, u := paused(t, gateway.gateway, function)
						resp := <-answer
						body, err := io.ReadAll(resp.Body)
						if resp.StatusCode != c.status || string(body) != c.want || (err != nil) != c.broken {
							t.Fatalf("%d, %d bytes of %d, %v", resp.StatusCode, len(body), len(c.want), err)
						}
						u.rest(pause)
					}
				})
			}
		}
	}
}

// A function that answers with each part of a body what came of it is heard to its end, however
// its body gets there.
func TestAnAnswerAndItsBodyAtTheSameTime(t *testing.T) {
	for _, function := range []string{withBody, withoutInput} {
		for _, far := range []bool{false, true} {
			gateway, there := nodes(t, far)
			there.instances.run(t, func(w http.ResponseWriter, req *http.Request) {
				control := http.NewResponseController(w)
				_ = control.EnableFullDuplex()
				_ = control.Flush()
				part := make([]byte, pause)
				for {
					n, err := req.Body.Read(part)
					_, _ = w.Write(part[:n])
					_ = control.Flush()
					if err != nil {
						return
					}
				}
			})
			u, answers := newUpload(5*pause), make(chan *http.Response, 1)
			go func() { answers <- do(t, gateway.gateway, request(t, http.MethodPost, function, newID(), "", u)) }()
			resp := <-answers
			for at := 0; at < len(u.content); at += pause {
				u.send(at, at+pause)
				got := make([]byte, pause)
				if _, err := io.ReadFull(resp.Body, got); err != nil || !slices.Equal(got, u.content[at:at+pause]) {
					t.Fatalf("%s, far %t: other bytes come at %d: %v", function, far, at, err)
				}
			}
			_ = u.to.Close()
			if rest := read(t, resp.Body); rest != "" {
				t.Errorf("%d bytes more", len(rest))
			}
		}
	}
}

// The request's timeout is that of a body, too, which its client does not end.
func TestTheTimeoutOfABodyThatPauses(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, function := range []string{withBody, withoutInput} {
			r := newRig(t, nil)
			r.functions.Set([]*nodeapi.Function{{Name: function, BodyInput: function == withBody, InputLimit: inputLimit,
				RequestTimeout: durationpb.New(200 * time.Millisecond), ReadyTimeout: durationpb.New(soon)}})
			client, wait := r.gateway, atThePause(func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) })
			if h2 {
				client = gatewayH2(t, r.Gateway())
				r.instances.runH2(t, wait)
			} else {
				r.instances.run(t, wait)
			}
			answer, u := paused(t, client, function)
			wantProblem(t, <-answer, http.StatusGatewayTimeout, "FunctionTimeout", "spec.template.spec.timeoutSeconds")
			u.rest(pause)
		}
	}
}

// What a client has sent of its body is another node's, when the first is gone without having
// delivered it. It need not send more for that.
func TestABodyThatPausesIsPlacedAgain(t *testing.T) {
	for _, function := range []string{withBody, withoutInput} {
		p := newPair(t, abort)
		p.gateway.instances.run(t, digests)
		away, _ := p.gateway.cp.activate(t.Context(), nil)
		p.gateway.cp.activate = first(away)
		p.target.instances.ready = func(ctx context.Context, id string) (netip.AddrPort, error) {
			select {
			case <-p.parked:
				p.server.CloseClientConnections()
			case <-ctx.Done():
			}
			return failGone(ctx, id) // which nobody hears any more
		}
		answer, u := paused(t, p.gateway.gateway, function)
		eventually(t, "it is placed again", func() bool { return p.gateway.cp.activations() == 2 })
		u.rest(pause)
		if got, want := read(t, (<-answer).Body), u.digest()+" -1 "; got != want {
			t.Errorf("%s is answered %s, want %s; %s", function, got, want, p.gateway.logs)
		}
	}
}

// endedConn is a connection that its other side has ended for that reason (proxy.Ending).
type endedConn struct {
	net.Conn
	over context.Context
}

func (c endedConn) Over() context.Context { return c.over }

func ended(why error) net.Conn {
	over, end := context.WithCancelCause(context.Background())
	end(why)
	return endedConn{over: over}
}

// Of a node that says nothing any more nobody knows what it does with the request, whatever its
// body does.
func TestABodyThatPausesIsNotSentToTwo(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		placed int
	}{
		"gone":   {io.ErrUnexpectedEOF, 2},
		"silent": {timeout{}, 1},
	} {
		for _, function := range []string{withBody, withoutInput} {
			// As net/http does it: what the body's end is comes first.
			r := newNode(t, roundTripper(func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				trace.GotConn(httptrace.GotConnInfo{Conn: ended(c.err)})
				if err := trace.Got1xxResponse(http.StatusProcessing, map[string][]string{"X-Headstart-Progress": {"parked"}}); err != nil {
					t.Error(err)
				}
				_, err := io.Copy(io.Discard, req.Body)
				return nil, err
			}))
			r.instances.run(t, atThePause(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }))
			r.cp.activate = first(&nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"})
			answer, u := paused(t, unixClient(t, serveUnix(t, r.Gateway())), function)
			resp := <-answer
			if want := map[int]int{1: http.StatusBadGateway, 2: http.StatusOK}[c.placed]; resp.StatusCode != want || r.cp.activations() != c.placed {
				t.Errorf("%s, %s: it is answered %d after %d placements", name, function, resp.StatusCode, r.cp.activations())
			}
			u.rest(pause)
		}
	}
}
