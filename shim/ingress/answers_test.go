package ingress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// accepts hands each connection to a listener to do, one after the other, and closes it.
func accepts(t *testing.T, do func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-gone })
	go func() {
		defer close(gone)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			_ = c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// early is a function that reads a request's head, writes its answer and closes the connection,
// whatever comes of the body: the kernel resets a connection that is closed with bytes unread.
func early(t *testing.T, answer string) netip.AddrPort {
	t.Helper()
	return accepts(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReaderSize(c, 16)) // which takes little of the body with the head
		_, _ = io.WriteString(c, answer)
	})
}

// A function that reads the file, or needs no input to answer, leaves the body alone and closes.
// Its answer counts, whatever becomes of the body that Headstart gave the request.
func TestAnEarlyAnswerCounts(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP/1.0, until it closes": "HTTP/1.0 200 OK\r\n\r\nan answer",
		"HTTP/1.0, of known length": "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nan answer",
		"HTTP/1.1, until it closes": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nan answer",
		"HTTP/1.1, of known length": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nan answer",
		"HTTP/1.1, in chunks":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nan answer\r\n0\r\n\r\n",
	} {
		for _, size := range []int{1 << 10, 1 << 20, inputLimit} {
			t.Run(fmt.Sprint(name, ", ", size), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, nil)
				r.instances.address = early(t, answer)
				ref := r.put("large", "", make([]byte, size))
				for range 20 {
					resp := r.do(t, request(t, http.MethodGet, withInput, newID(), ref, nil))
					if got, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(got) != "an answer" || err != nil {
						t.Fatalf("%d %q, %v", resp.StatusCode, got, err)
					}
				}
				for range 20 { // of a client's own body as well
					resp := r.do(t, request(t, http.MethodPost, withoutInput, newID(), "", io.LimitReader(zeros{}, int64(size))))
					if got, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(got) != "an answer" || err != nil {
						t.Fatalf("a client's body: %d %q, %v", resp.StatusCode, got, err)
					}
				}
			})
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Of a long answer that only its connection's end ends, the kernel drops what it has not sent when
// the function closes with its body unread. It does not pass for whole.
func TestALongAnswerThatIsCutOffIsNotWhole(t *testing.T) {
	const size = 3_000_000
	r := newRig(t, nil)
	r.instances.address = early(t, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", size))
	ref := r.put("large", "", make([]byte, 1<<20))
	for range 10 {
		resp := r.do(t, request(t, http.MethodGet, withInput, newID(), ref, nil))
		if got, err := io.ReadAll(resp.Body); err == nil && len(got) != size {
			t.Errorf("%d of %d bytes pass for the whole answer", len(got), size)
		}
	}
}

// A function that speaks HTTP/2 and resets its connection is noticed, whatever it has said just
// before, while its body is being written.
func TestAResetOverHTTP2(t *testing.T) {
	r := newRig(t, nil)
	r.instances.address = accepts(t, func(c net.Conn) {
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = f.WriteWindowUpdate(0, 1<<30)
		_, _ = io.ReadFull(c, make([]byte, 64<<10)) // then its buffers fill
		_ = f.WritePing(false, [8]byte{})
	})
	client := gatewayH2(t, r.Gateway())
	for range 5 {
		resp := do(t, client, request(t, http.MethodPost, withoutInput, newID(), "", io.LimitReader(zeros{}, inputLimit)))
		wantProblem(t, resp, http.StatusBadGateway, "FunctionFailed", "")
	}
}

// A function that breaks its answer off has failed all the same.
func TestAnEarlyAnswerThatBreaksOff(t *testing.T) {
	for name, answer := range map[string]string{
		"of known length": "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nan answer",
		"in chunks":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nan answer\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.instances.address = early(t, answer)
			ref := r.put("large", "", make([]byte, inputLimit))
			resp := r.do(t, request(t, http.MethodGet, withInput, newID(), ref, nil))
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("half an answer looks whole")
			}
		})
	}
}
