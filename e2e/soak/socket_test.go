//go:build integration

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// callerID is the sandbox of each node whose function calls others.
const callerID = "soak_caller_u"

// caller is that sandbox as its shim names it.
func caller() *nodeapi.Pod {
	return &nodeapi.Pod{Namespace: "soak", Name: "caller", Uid: "u", Container: "function"}
}

// openCaller makes a node's sandbox that calls.
func (w *world) openCaller(ctx context.Context, n *node) error {
	shims, err := w.cp.shims(n)
	if err != nil {
		return err
	}
	_, err = shims.Describe(ctx, &nodeapi.DescribeRequest{Sandbox: callerID, Pod: caller()}, grpc.WaitForReady(true))
	return err
}

// closeCaller has it end.
func (w *world) closeCaller(n *node) error {
	return w.cp.gone(placed{n, callerID, caller()})
}

// socketOf is the socket of a sandbox of the node's, as the host sees it.
func (n *node) socketOf(id string) string {
	return filepath.Join(n.state, "instances", id, "socket", "headstart.sock")
}

// socket is the way of a function to its node's daemon, while it works on a request.
type socket struct {
	run     *run
	node    *node
	request string
	at      string
}

// socket is nil if the case has no use for it.
func (f *function) socket(r *run, request string) *socket {
	id, ok := r.pod(f.node)
	if !ok || r.Socket == plan.Unread && r.Fault != plan.Pries {
		return nil
	}
	return &socket{r, f.node, request, f.node.socketOf(id)}
}

// use does with it what the case says.
func (s *socket) use(ctx context.Context) (read *part, got string) {
	if s.run.Fault == plan.Pries {
		got = s.pry(ctx)
	}
	var content []byte
	var err error
	switch s.run.Socket {
	case plan.Whole:
		content, err = s.whole(ctx)
	case plan.Ranges:
		content, err = s.ranges(ctx)
	default:
		return nil, got
	}
	p := part{Size: int64(len(content)), SHA256: digest(content)}
	if err != nil {
		p.Broken = err.Error()
	}
	return &p, got
}

// ask sends one request to a daemon, by a sandbox's socket.
func ask(ctx context.Context, at, method, path, bytesRange string) (*http.Response, error) {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at)
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://headstart"+path, nil)
	if err != nil {
		return nil, err
	}
	if bytesRange != "" {
		req.Header.Set("Range", "bytes="+bytesRange)
	}
	return transport.RoundTrip(req)
}

func (s *socket) input(ctx context.Context, method, bytesRange string) (*http.Response, error) {
	return ask(ctx, s.at, method, "/input/"+s.request, bytesRange)
}

// whole reads the input from its start to its end. The sender of a body goes on when half of
// it is there.
func (s *socket) whole(ctx context.Context) ([]byte, error) {
	answer, err := s.input(ctx, http.MethodGet, "")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(answer)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, answer.Body, s.run.half()); err != nil && err != io.EOF {
		return nil, err
	}
	s.run.proceed()
	if _, err := io.Copy(&b, answer.Body); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ranges reads it in two parts, and looks at others.
func (s *socket) ranges(ctx context.Context) ([]byte, error) {
	half := s.run.half()
	if half == 0 {
		return s.whole(ctx)
	}
	content, status, _, err := s.part(ctx, fmt.Sprintf("0-%d", half-1))
	if err != nil || status == http.StatusOK { // of an input without bytes ranges are ignored
		return content, err
	}
	s.run.proceed()
	rest, status, size, err := s.part(ctx, fmt.Sprintf("%d-", len(content)))
	if err != nil {
		return nil, err
	}
	if status == http.StatusPartialContent {
		content = append(content, rest...)
	}
	if size != int64(len(content)) {
		return nil, fmt.Errorf("it has %d bytes in parts, and %d as it says", len(content), size)
	}
	end, _, _, err := s.part(ctx, fmt.Sprintf("-%d", half))
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(content, end) || int64(len(end)) != min(half, size) {
		return nil, fmt.Errorf("its last %d bytes are %d others", half, len(end))
	}
	if _, status, _, err := s.part(ctx, fmt.Sprintf("%d-", size)); err != nil || status != http.StatusRequestedRangeNotSatisfiable {
		return nil, fmt.Errorf("what begins at its end: status %d, %w", status, errors.Join(err, errOther))
	}
	return content, s.head(ctx, size)
}

// errOther is an answer that is not as it should be.
var errOther = errors.New("not the answer that it should be")

// head asks for the input's size.
func (s *socket) head(ctx context.Context, size int64) error {
	answer, err := s.input(ctx, http.MethodHead, "")
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // there is none
	if answer.StatusCode != http.StatusOK || answer.ContentLength != size {
		return fmt.Errorf("its head: status %d, a length of %d, and not %d: %w", answer.StatusCode, answer.ContentLength, size, errOther)
	}
	return nil
}

// part reads a range. The size is the whole input's, -1 if it is not said.
func (s *socket) part(ctx context.Context, bytesRange string) (content []byte, status int, size int64, err error) {
	answer, err := s.input(ctx, http.MethodGet, bytesRange)
	if err != nil {
		return nil, 0, 0, err
	}
	defer answer.Body.Close()
	_, of, _ := strings.Cut(answer.Header.Get("Content-Range"), "/")
	if _, err := fmt.Sscan(of, &size); err != nil {
		size = -1
	}
	switch answer.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, answer.StatusCode, size, nil
	case http.StatusOK, http.StatusPartialContent:
		content, err = io.ReadAll(answer.Body)
		return content, answer.StatusCode, size, err
	}
	return nil, answer.StatusCode, size, refusal(answer)
}

// refusal is what a daemon says.
func refusal(answer *http.Response) error {
	var p problem.Problem
	if err := json.NewDecoder(answer.Body).Decode(&p); err != nil {
		return fmt.Errorf("status %d without a problem: %w", answer.StatusCode, err)
	}
	return &p
}

// pry asks for what is not the sandbox's own, and returns what of it was not refused.
func (s *socket) pry(ctx context.Context) string {
	return joined(
		refused(ctx, s.at, "/input/"+s.run.w.another(s.run), "RequestUnknown"),
		refused(ctx, s.node.socketOf(callerID), "/input/"+s.request, "RequestUnknown"),
		refused(ctx, s.at, "/call/other/none", "CallNotAllowed"))
}

func refused(ctx context.Context, at, path, title string) error {
	answer, err := ask(ctx, at, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := refusal(answer); problem.Of(err).Title != title {
		return fmt.Errorf("%s is not refused with %s: status %d, %w", path, title, answer.StatusCode, err)
	}
	return nil
}

// another returns the id of another request that is under way, if there is one of which a
// function of the same node has got something; without any, one that is none.
func (w *world) another(than *run) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := strings.Repeat("0", 32)
	for id, r := range w.runs {
		switch delivered, ended := r.stage(); {
		case r == than || ended || r.Way != plan.Gateway:
		case delivered && r.On == than.On:
			return id
		default:
			found = id
		}
	}
	return found
}
