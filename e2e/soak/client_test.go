//go:build integration

package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gatekey"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// outcome is what a client saw of its request.
type outcome struct {
	left    bool  // the client has gone
	err     error // before an answer
	status  int
	problem problem.Problem
	report  report
	filler  []byte
	broken  error // the answer ended early
	late    bool
}

func (o outcome) String() string {
	switch {
	case o.left:
		return "the client left"
	case o.err != nil:
		return "no answer: " + o.err.Error()
	case o.broken != nil:
		return fmt.Sprintf("%d, then %v", o.status, o.broken)
	case o.status == 0:
		return "dead letter " + o.problem.Title
	}
	return strings.TrimSpace(fmt.Sprint(o.status, " ", o.problem.Title))
}

// short is what is counted.
func (o outcome) short() string {
	switch {
	case o.err != nil && !o.left:
		return "no answer"
	case o.broken != nil && !o.left:
		return fmt.Sprintf("%d, broken", o.status)
	}
	return o.String()
}

// errLeft ends what a client does that leaves.
var errLeft = errors.New("the client leaves")

// cut passes bytes on until there were enough.
type cut struct {
	to   io.Writer
	left int64 // negative: all
}

func (c *cut) Write(p []byte) (int, error) {
	if c.left < 0 || int64(len(p)) < c.left {
		if c.left > 0 {
			c.left -= int64(len(p))
		}
		return c.to.Write(p)
	}
	n, err := c.to.Write(p[:c.left])
	if err == nil {
		err = errLeft
	}
	return n, err
}

// request is what is sent: the gateway's headers, or those of a function that calls, and the
// client's body, nil for none.
func (r *run) request(id, function string) (header http.Header, body []byte) {
	h := http.Header{}
	set := func(name, value string) { h[name] = []string{value} }
	set(caseHeader, fmt.Sprint(r.Number))
	if r.Way == plan.Call {
		set("traceparent", r.traceparent()) // by which it is known again
	} else {
		set("x-headstart-function", "soak/"+function)
		set("x-headstart-key", r.w.node(r.From).key("soak/"+function))
		set("x-headstart-request", id)
	}
	if ref := r.reference(); ref != "" {
		set("x-headstart-input", ref)
	}
	switch {
	case r.Input == plan.Body:
		return h, r.Content(1)
	case r.OwnBody:
		return h, r.Own()
	}
	return h, nil
}

// key is what the daemon's own endpoint has for a function, which a gateway puts into requests.
func (n *node) key(function string) string {
	keys, err := gatekey.Open(filepath.Join(n.state, "gateway-keys.json"))
	if err != nil {
		return err.Error()
	}
	return keys.Of(function)
}

// path is what is asked for.
func (r *run) path(function string) string {
	if r.Way == plan.Call {
		return "/call/-/" + function
	}
	return "/"
}

// paced is a body, whose second half comes when the function has the first one if the case
// says so.
func (r *run) paced(ctx context.Context, body []byte) io.Reader {
	if !r.Paced {
		return bytes.NewReader(body)
	}
	return io.MultiReader(bytes.NewReader(body[:r.half()]), gate{ctx, r.halfRead}, bytes.NewReader(body[r.half():]))
}

// half is where the second half of the input begins.
func (r *run) half() int64 { return r.Size / 2 }

// gate is a reader without bytes, which ends when it is opened.
type gate struct {
	ctx    context.Context
	opened <-chan struct{}
}

func (g gate) Read([]byte) (int, error) {
	select {
	case <-g.opened:
		return 0, io.EOF
	case <-g.ctx.Done():
		return 0, g.ctx.Err()
	}
}

// leavesSending is at which byte the client leaves, negative for never.
func (r *run) leavesSending() int64 {
	if r.Fault == plan.ClientLeavesSending {
		return r.At
	}
	return -1
}

// dial opens a connection as the gateway does, or a function that calls: one to a daemon that
// is being restarted is tried again.
func (r *run) dial(ctx context.Context) (conn net.Conn, err error) {
	from := r.w.node(r.From)
	socket := from.socket("gateway/ingress.sock")
	if r.Way == plan.Call {
		socket = from.socketOf(callerID)
	}
	err = testbed.Poll(ctx, patience, func(ctx context.Context) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
		return err
	})
	return conn, err
}

// send sends the case's request and returns what became of it.
func (r *run) send(id, function string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	var o outcome
	if r.HTTP2 {
		o = r.send2(ctx, id, function)
	} else {
		o = r.send1(ctx, id, function)
	}
	o.late = time.Since(began) >= patience
	return o
}

// send1 sends it by HTTP/1.1, byte for byte.
func (r *run) send1(ctx context.Context, id, function string) (o outcome) {
	conn, err := r.dial(ctx)
	if err != nil {
		return outcome{err: err}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	ctx, leave := context.WithCancel(ctx)
	header, body := r.request(id, function)
	sent := make(chan error, 1)
	go func() {
		to := &cut{conn, r.leavesSending()}
		err := writeHead(to, r.path(function), function, header, body, r.Chunked)
		if err == nil {
			err = writeBody(to, r.paced(ctx, body), r.Chunked && body != nil)
		}
		sent <- err
	}()
	if r.leavesSending() >= 0 {
		if <-sent == errLeft {
			leave()
			return outcome{left: true}
		}
		sent <- nil
	}
	defer func() { leave(); _ = conn.Close(); <-sent }()
	in := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return outcome{err: err}
		}
		if answer.StatusCode >= http.StatusOK {
			return r.take(answer)
		}
	}
}

func writeHead(to io.Writer, path, function string, header http.Header, body []byte, chunked bool) error {
	var head bytes.Buffer
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s.soak\r\n", method, path, function)
	_ = header.Write(&head) // to memory
	if body != nil && chunked {
		head.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	} else {
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", len(body))
	}
	_, err := to.Write(head.Bytes())
	return err
}

// chunkSize is how large chunks are, in bytes.
const chunkSize = 30_000

func writeBody(to io.Writer, body io.Reader, chunked bool) error {
	if !chunked {
		_, err := io.Copy(to, body)
		return err
	}
	// Hidden: it would write all at once.
	if _, err := io.CopyBuffer(httputil.NewChunkedWriter(to), struct{ io.Reader }{body}, make([]byte, chunkSize)); err != nil {
		return err
	}
	_, err := io.WriteString(to, "0\r\n\r\n")
	return err
}

// send2 sends it by HTTP/2, on a connection of its own.
func (r *run) send2(ctx context.Context, id, function string) outcome {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) }, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	header, body := r.request(id, function)
	method, from := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, from = http.MethodPost, &leaving{r.paced(ctx, body), r.leavesSending(), leave}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+function+".soak"+r.path(function), from)
	if err != nil {
		return outcome{err: err}
	}
	req.Header = header
	if body != nil && !r.Chunked {
		req.ContentLength = int64(len(body))
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return outcome{err: err, left: ctx.Err() != nil && r.leavesSending() >= 0}
	}
	return r.take(answer)
}

// leaving is a body whose sender leaves.
type leaving struct {
	io.Reader
	left  int64
	leave func()
}

func (l *leaving) Read(p []byte) (int, error) {
	if l.left < 0 {
		return l.Reader.Read(p)
	}
	if l.left == 0 {
		l.leave()
		return 0, errLeft
	}
	n, err := l.Reader.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// take reads an answer, or as much of it as the client stays for.
func (r *run) take(answer *http.Response) (o outcome) {
	defer answer.Body.Close()
	o.status = answer.StatusCode
	if r.Fault == plan.ClientLeavesReading && o.status == http.StatusOK {
		_, err := io.CopyN(io.Discard, answer.Body, r.At)
		return outcome{status: o.status, left: err == nil, broken: err}
	}
	body, err := io.ReadAll(answer.Body)
	o.broken = err
	if answer.Header.Get("Content-Type") == filterapi.ProblemContentType {
		o.broken = errors.Join(o.broken, json.Unmarshal(body, &o.problem))
		return o
	}
	line, filler, whole := bytes.Cut(body, []byte("\n"))
	o.filler = filler
	if whole {
		o.broken = errors.Join(o.broken, json.Unmarshal(line, &o.report))
	}
	return o
}
