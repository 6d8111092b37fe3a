package notify

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	four := []byte{unix.AF_INET, 0, 0x15, 0x38, 10, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0}
	six := append([]byte{unix.AF_INET6, 0, 0x15, 0x38, 0, 0, 0, 0}, make([]byte, 20)...)
	copy(six[8:], netip.MustParseAddr("2001:db8::1").AsSlice())
	mapped := append([]byte{}, six...)
	copy(mapped[8:], netip.MustParseAddr("::ffff:10.0.0.3").AsSlice())
	for name, tt := range map[string]struct {
		raw  []byte
		want string
	}{
		"IPv4": {four, "10.0.0.3:5432"}, "IPv6": {six, "[2001:db8::1]:5432"}, "IPv4 in IPv6": {mapped, "10.0.0.3:5432"},
		"IPv6 cut": {six[:27], ""}, "IPv4 cut": {four[:15], ""}, "unix": {append([]byte{unix.AF_UNIX, 0}, "/run/postgresql/"...), ""},
		"nothing": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, is := parse(tt.raw)
			if is != (tt.want != "") || is && at.String() != tt.want {
				t.Errorf("%s, %v, want %q", at, is, tt.want)
			}
		})
	}
}

// A socket of TCP that the program has done nothing by is told from all others.
func TestFresh(t *testing.T) {
	socket := func(family, kind int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	bound := socket(unix.AF_INET, unix.SOCK_STREAM)
	if err := unix.Bind(bound, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	toDevice := socket(unix.AF_INET6, unix.SOCK_STREAM)
	if err := unix.SetsockoptInt(toDevice, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, 1); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		fd   int
		want bool
	}{
		"IPv4": {socket(unix.AF_INET, unix.SOCK_STREAM), true}, "IPv6": {socket(unix.AF_INET6, unix.SOCK_STREAM), true},
		"UDP": {socket(unix.AF_INET, unix.SOCK_DGRAM), false}, "unix": {socket(unix.AF_UNIX, unix.SOCK_STREAM), false},
		"bound": {bound, false}, "bound to a device": {toDevice, false}, "no socket": {1, false},
	} {
		if got := fresh(tt.fd); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{unix.AF_INET, 0, 0x15, 0x38, 10, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if at, is := parse(raw); is && (!at.IsValid() || at.Addr().Zone() != "") {
			t.Errorf("%s of %x", at, raw)
		}
	})
}

// nobody has connections.
type nobody struct{}

func (nobody) Targets(netip.AddrPort) bool    { return false }
func (nobody) Ahead(netip.AddrPort) func(int) { return nil }
func (nobody) Connect(context.Context, netip.AddrPort) (func(int), error) {
	return nil, nil
}

// What comes to the socket, and is no listener of seccomp, is closed.
func TestListenerTakesNothingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a-name-that-is-longer-than-a-unix-socket-may-be-called-0123456789-0123456789-0123456789-0123456789")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	before := open(t)
	l, err := Listen(dir, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, fds := range [][]int{nil, {int(w.Fd())}, {int(w.Fd()), int(w.Fd())}} {
		c, err := net.Dial("unix", l.Path())
		if err != nil {
			t.Fatal(err)
		}
		var rights []byte
		if fds != nil {
			rights = unix.UnixRights(fds...)
		}
		if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("{}"), rights, nil); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("answered %d, %v", n, err)
		}
		c.Close()
	}
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil { // the copies are closed
		t.Errorf("read %d, %v", n, err)
	}
	r.Close()
	l.Close()
	l.Close()
	if now := open(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
