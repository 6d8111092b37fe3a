package notify

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestRegistrations(t *testing.T) {
	info := "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1057\n" +
		"tfd:        5 events: 80000019 data: ffffffff00000005  pos:0 ino:2b5c sdev:8\n" +
		"tfd:       15 events:       19 data:               f  pos:0 ino:2b5c sdev:8\n"
	if diff := cmp.Diff([]poll{{3, 0x80000019, 0xffffffff00000005}}, registrations(info, 3, 5), cmp.AllowUnexported(poll{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !cloexec(info) || cloexec("flags:\t02\n") || cloexec("") {
		t.Error("flags are misread")
	}
}

// What /proc says of its own process is what the process has done.
func TestDescribe(t *testing.T) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: 7, Pad: 1}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, socket, &event); err != nil {
		t.Fatal(err)
	}
	want := described{polls: []poll{{epoll, unix.EPOLLIN | unix.EPOLLET | unix.EPOLLERR | unix.EPOLLHUP, 1<<32 | 7}}}
	got := describe(os.Getpid(), socket, false)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(described{}, poll{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := describe(os.Getpid(), epoll, true); !got.cloexec || got.polls != nil {
		t.Errorf("of one that blocks: %+v", got)
	}
	if !fresh(socket) || fresh(epoll) {
		t.Error("a new socket is not told from another descriptor")
	}
}

// What a program has open bounds what is looked at for its call.
func TestAttackAProgramHasManyEpolls(t *testing.T) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	for range epollsLimit + 10 {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(epoll)
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			t.Fatal(err)
		}
	}
	// Go has one of its own.
	if got := len(describe(os.Getpid(), socket, false).polls); got != epollsLimit && got != epollsLimit-1 {
		t.Errorf("%d are looked at", got)
	}
	if got := len(read("/proc/self/smaps", 1)); got == 0 || got > readLimit {
		t.Errorf("%d bytes are read", got)
	}
}

// A socket that its program has closed before it is registered leaves nothing open.
func TestRegisterWhatIsClosed(t *testing.T) {
	program := exec.Command("cat")
	in, err := program.StdinPipe()
	if err := errors.Join(err, program.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := program.Wait(); err != nil {
			t.Error(err)
		}
	}()
	const number = 200 // which the program has not
	if err := unix.Dup3(0, number, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(number)
	before := open(t)
	job{tid: program.Process.Pid, number: number}.do()
	if now := open(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{unix.AF_INET, 0, 0x15, 0x38, 10, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0}, "tfd: 5 events: 19 data: 5 pos:0\nflags:\t02000002\n")
	f.Fuzz(func(t *testing.T, raw []byte, info string) {
		if at, is := parse(raw); is && (!at.IsValid() || at.Addr().Zone() != "") {
			t.Errorf("%s of %x", at, raw)
		}
		for _, p := range registrations(info, 3, 5) {
			if p.epoll != 3 {
				t.Errorf("%+v of %q", p, info)
			}
		}
		cloexec(info)
	})
}

// nobody has connections.
type nobody struct{}

func (nobody) Targets(netip.AddrPort) bool   { return false }
func (nobody) Ahead(netip.AddrPort) *os.File { return nil }
func (nobody) Connect(context.Context, netip.AddrPort) (*os.File, error) {
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
