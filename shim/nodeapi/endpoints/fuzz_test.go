package endpoints

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Bytes without descriptors are no listener, whatever they say.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"sandbox":"default_fire-x_u-1","name":"s3"}`))
	f.Add([]byte(`{"sandbox":"default_fire-x_u-1","name":"s3","left":"AWS_PROFILE"}`))
	f.Add([]byte(`null`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			return // more says nothing else, and at some point is more than the socket takes
		}
		here, there := pair(t)
		if _, err := there.Write(data); err != nil {
			t.Fatal(err)
		}
		_ = there.Close()
		o, l, err := receive(here)
		if l != nil || err == nil && o.Left == "" {
			t.Errorf("%+v, %v, %v of %q", o, l, err, data)
		}
	})
}

// pair is a connection in one process.
func pair(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, len(fds))
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
