package streams

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// Whatever the daemon says, the shim answers questions with an error, and asks about no other addresses than it was
// told.
func FuzzShim(f *testing.F) {
	for _, seed := range []string{`{"id":7,"dial":"10.0.0.3:5432","timeout":"5s"}`, `{"id":8,"join":true}`, `{"targets":["10.0.0.3:5432"]}`,
		`{"id":1,"connect":"10.0.0.3:5432"}`, `{"id":1,"pass":true}`, `{"targets":null}`, `{"targets":["a"]}`, `null`, ``, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > messageLimit+1 {
			return
		}
		here, there := packetPair(t)
		if _, err := there.Write(said); err != nil {
			t.Fatal(err)
		}
		p, err := receive(here)
		if err != nil {
			return
		}
		s := NewShim("a", HostNetwork, func(netip.Addr) (*Listener, error) {
			return nil, errors.New("no network")
		})
		if p.asks() {
			answer, sent := s.answer(t.Context(), p)
			if answer.Error == "" || len(answer.files) > 0 || sent != nil {
				t.Errorf("%q is answered with %+v", said, answer)
			}
			return
		}
		descriptors.CloseAll(p.files)
		s.hear(nil, p.message) // it asks nobody
		if len(s.targets) > TargetsLimit {
			t.Errorf("%d targets", len(s.targets))
		}
	})
}

func packetPair(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}
