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
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
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

// request is what is sent: the gateway's headers and the client's body.
func (r *run) request(id, function string) (http.Header, []byte) {
	h := http.Header{}
	set := func(name, value string) { h[name] = []string{value} }
	set("x-headstart-function", "soak/"+function)
	set("x-headstart-request", id)
	set(caseHeader, fmt.Sprint(r.Number))
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

// leavesSending is at which byte the client leaves, negative for never.
func (r *run) leavesSending() int64 {
	if r.Fault == plan.ClientLeavesSending {
		return r.At
	}
	return -1
}

// dial opens a connection as the gateway does.
func (r *run) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", r.w.edge.socket("gateway/ingress.sock"))
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
	header, body := r.request(id, function)
	sent := make(chan error, 1)
	go func() { sent <- write(&cut{conn, r.leavesSending()}, header, body, r.Chunked, function) }()
	if r.leavesSending() >= 0 {
		if <-sent == errLeft {
			return outcome{left: true}
		}
		sent <- nil
	}
	defer func() { _ = conn.Close(); <-sent }()
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

func write(to io.Writer, header http.Header, body []byte, chunked bool, function string) error {
	var head bytes.Buffer
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	fmt.Fprintf(&head, "%s / HTTP/1.1\r\nHost: %s.soak\r\n", method, function)
	_ = header.Write(&head) // to memory
	if body != nil && chunked {
		head.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	} else {
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", len(body))
	}
	if _, err := to.Write(head.Bytes()); err != nil {
		return err
	}
	if !chunked || body == nil {
		_, err := to.Write(body)
		return err
	}
	w := httputil.NewChunkedWriter(to)
	const some = 30_000
	for len(body) > 0 {
		n := min(some, len(body))
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
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
		method, from = http.MethodPost, &leaving{bytes.NewReader(body), r.leavesSending(), leave}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+function+".soak/", from)
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
	if answer.Header.Get("Content-Type") == problem.ContentType {
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
