package ingress_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// answer is one as its reader understands it.
type answer struct {
	status int
	header http.Header
	body   string
}

// readAnswer skips what comes before an answer.
func readAnswer(r *bufio.Reader) (answer, error) {
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		return answer{resp.StatusCode, resp.Header, string(body)}, err
	}
}

// Whatever bytes a function answers with, the gateway gets one answer, which is the function's or says
// that it is none, and the next request by the same connection gets its own.
func FuzzAnswers(f *testing.F) {
	const ok, split = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhidden"
	for _, said := range []string{
		"", ok, ok + "\r\nuntil the end", ok + "Content-Length: 2\r\n\r\nok", ok + "Content-Length: 2\r\n\r\nok" + split,
		ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", ok + "Content-Length: 2\r\nContent-Length: 60\r\n\r\nok" + split,
		ok + "Content-Length: 2, 2\r\n\r\nok", ok + "Content-Length: -1\r\n\r\nok", ok + "Content-Length: +2\r\n\r\nok",
		ok + "Content-Length: 60\r\n\r\nok", ok + "Content-Length: 0\r\n\r\n" + split,
		ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + split,
		ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n" + split,
		ok + "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + split,
		ok + "Transfer-Encoding: identity\r\n\r\nok", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		ok + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", ok + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\n\r\n2;a=b\nok\r\n0\r\n\r\n", ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
		ok + "Transfer-Encoding: chunked\r\nTrailer: x-headstart-request\r\n\r\n0\r\nx-headstart-request: a\r\n\r\n",
		ok + "x-a: a\r\n b\r\nContent-Length: 0\r\n\r\n", ok + "x-a: a\rx-b: b\r\nContent-Length: 0\r\n\r\n", ok + "x-a: a\x00\r\n\r\n",
		ok + "x-headstart-request: 0\r\nx-headstart-request: 1\r\nx-headstart-undelivered: InstanceGone\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n" + split, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + split,
		"HTTP/1.1 102 Processing\r\nx-headstart-progress: delivering\r\n\r\n" + split,
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000) + split, "HTTP/1.1 101 Switching Protocols\r\n\r\n" + split,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + split,
		"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n" + split,
		"HTTP/1.0 200 OK\r\n\r\nok", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 99 No\r\n\r\n", "HTTP/1.1 1000 No\r\n\r\n", "ICY 200 OK\r\n\r\n", "\r\n" + split,
	} {
		f.Add([]byte(said))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		r := newRig(t, nil)
		r.instances.address = accepts(t, func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = c.Write(said)
			}
		})
		c, err := net.Dial("unix", serveUnix(t, r.Gateway()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(soon))
		ids := []string{newID(), newID()}
		for i, connection := range []string{"keep-alive", "close"} {
			if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: %s\r\nx-headstart-function: %s\r\nx-headstart-request: %s\r\n\r\n", connection, withoutInput, ids[i]); err != nil {
				return // the first answer was cut off already
			}
		}
		want, wantErr := readAnswer(bufio.NewReader(bytes.NewReader(said)))
		from := bufio.NewReader(c)
		for _, id := range ids {
			got, err := readAnswer(from)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				return // it is seen to be broken
			}
			if err != nil {
				t.Fatalf("to %q the gateway gets what is no answer: %v", said, err)
			}
			if !slices.Equal(got.header.Values(filterapi.HeaderRequest), []string{id}) || got.header.Get(filterapi.HeaderProgress) != "" {
				t.Fatalf("to %q the request %s gets %+v", said, id, got)
			}
			problem := got.status >= http.StatusInternalServerError && got.header.Get("Content-Type") == filterapi.ProblemContentType
			if !problem && (wantErr != nil || got.status != want.status || got.body != want.body || got.header.Get(filterapi.HeaderUndelivered) != "") {
				t.Fatalf("to %q the gateway gets %+v, and the function said %+v, %v", said, got, want, wantErr)
			}
		}
		if more, _ := io.ReadAll(from); len(more) > 0 {
			t.Fatalf("to %q there is more: %q", said, more)
		}
	})
}
