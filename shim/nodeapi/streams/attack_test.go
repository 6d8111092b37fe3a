package streams

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A daemon that changes its targets again and again, and answers nothing, has no more work done, and no more open, than
// with one list.
func TestAttackOfTheDaemonByTargets(t *testing.T) {
	s := NewShim("a", HostNetwork, ListenIn(""))
	defer s.endStreams()
	here, _ := packetPair(t)
	c := newConversation(here)
	s.daemon = c
	asked := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting)
	}
	wantAsked := func(n int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); asked() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d questions, want %d", asked(), n)
			}
		}
	}
	for list := range 3 {
		var all []netip.AddrPort
		for port := range TargetsLimit {
			all = append(all, netip.AddrPortFrom(netip.MustParseAddr("10.0.0.3"), uint16(1+list*TargetsLimit+port)))
		}
		s.hear(c, message{Targets: text(all)})
		wantAsked(TargetsLimit)
		if len(s.places) != TargetsLimit {
			t.Errorf("%d listeners", len(s.places))
		}
	}
	c.mu.Lock()
	for id, answer := range c.waiting {
		answer <- parcel{message: message{ID: id, Pass: true}}
		delete(c.waiting, id)
	}
	c.mu.Unlock()
	c.work.Wait()
	s.hear(c, message{Targets: text([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:5432")})})
	wantAsked(1) // a place has become free
	close(c.over)
	c.work.Wait()
}

// A socket whose connection does not come is free again: the program's own connect(2) works. One that is connected stays so.
func TestAttackOfTheLoopback(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	l, silent := listener(t, loopback), listener(t, loopback)
	var sockets [2]int
	for i := range sockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		sockets[i] = fd
	}
	broken := &Listener{fd: silent.fd, at: l.at} // of which the one waits for what the other one has
	if f, err := broken.connect(sockets[0]); err == nil {
		t.Errorf("connected by %v", f)
	}
	to := &unix.SockaddrInet4{Addr: l.at.Addr().As4(), Port: int(l.at.Port())}
	if err := unix.Connect(sockets[0], to); err != nil {
		t.Errorf("the program's own: %v", err)
	}
	f, err := l.connect(sockets[1])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := l.connect(sockets[1]); !errors.Is(err, errNotNew) {
		t.Errorf("%v, want that it is connected", err)
	}
	for i, want := range []error{nil, unix.EISCONN} {
		if err := unix.Connect(sockets[1], to); !errors.Is(err, want) {
			t.Errorf("connect(2) number %d: %v, want %v", i, err, want)
		}
	}
}

// A stranger that comes before the program's connection does not get its place.
func TestAttackOfTheListener(t *testing.T) {
	l := listener(t, netip.MustParseAddr("::1"))
	stranger, err := net.Dial("tcp", l.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	program, err := net.Dial("tcp", l.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	own, err := program.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	f, err := l.accept(number(own))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	peer, err := unix.Getpeername(number(f))
	if got := addressOf(peer).String(); err != nil || got != program.LocalAddr().String() {
		t.Errorf("%s has it, %v, and not %s", got, err, program.LocalAddr())
	}
	if err := stranger.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger hears %v", err)
	}
}

func listener(t *testing.T, to netip.Addr) *Listener {
	t.Helper()
	l, err := listen(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// A shim that never sends what the daemon takes has it given up, and is owed only so many.
func TestAttackOfTheShimByEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given atomic.Int64
		take := func(program net.Conn) {
			if program != nil {
				t.Error("something came")
			}
			given.Add(1)
		}
		e := &ends{awaited: map[uint64]func(net.Conn){}}
		for id := range uint64(endsLimit) {
			if !e.await(message{ID: id, Ahead: id%2 == 0}, take) {
				t.Fatalf("the one number %d is not awaited", id)
			}
		}
		if e.await(message{ID: endsLimit}, take) || given.Load() != 1 {
			t.Errorf("one too many is awaited")
		}
		e.came(parcel{message: message{End: endsLimit - 1}})
		e.came(parcel{message: message{End: endsLimit - 1}})
		time.Sleep(Timeout)
		synctest.Wait()
		if n := given.Load(); n != 1+endsLimit/2 {
			t.Errorf("%d are given up", n)
		}
		time.Sleep(aheadLimit)
		synctest.Wait()
		if n := given.Load(); n != 1+endsLimit {
			t.Errorf("%d are given up", n)
		}
	})
}
