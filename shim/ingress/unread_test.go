package ingress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A function that takes its input as a file or by its socket leaves the body alone. Its answer
// arrives all the same, also when the body is larger than what is on its way.
func TestAFunctionNeedNotReadItsBody(t *testing.T) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		return err
	}}
	l, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	r := newRig(t, nil)
	r.instances.address = netip.MustParseAddrPort(l.Addr().String())
	ref := r.put("large", "", make([]byte, inputLimit))
	for range 20 {
		resp := r.do(t, request(t, http.MethodGet, withInput, newID(), ref, nil))
		if got := read(t, resp.Body); resp.StatusCode != http.StatusOK || got != "an answer" {
			t.Fatalf("%d %s", resp.StatusCode, got)
		}
	}
}
