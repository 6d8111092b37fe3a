//go:build integration

package linkemu

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
)

// namespace is a network namespace without a name, which goes with its descriptor: a
// killed test leaves nothing behind.
type namespace struct{ handle netns.NsHandle }

func (n namespace) path() string { return fmt.Sprintf("/proc/self/fd/%d", int(n.handle)) }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	made := make(chan error, 1)
	var n namespace
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in its namespace
		var err error
		n.handle, err = netns.New()
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("making a network namespace (this test needs root): %v", err)
	}
	t.Cleanup(func() { n.handle.Close() })
	return n
}

// do runs f on a thread inside the namespace: sockets it makes stay there.
func (n namespace) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as above
		if err := netns.Set(n.handle); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func (n namespace) hasDevice(t *testing.T, name string) bool {
	t.Helper()
	h, err := netlink.NewHandleAt(n.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, err = h.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// rig is a link between two namespaces with a server at end B.
type rig struct {
	a, b   namespace
	link   *Link
	broken bool // the test has broken the link: it closes with an error
}

const (
	addressA   = "10.8.0.1"
	addressB   = "10.8.0.2"
	deviceName = "emu0"
	prefix     = "/24"
	noDeadline = 30 * time.Second // nothing here takes as long, unless it hangs
)

func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	r := &rig{a: newNamespace(t), b: newNamespace(t)}
	c.A = End{Namespace: r.a.path(), Device: deviceName, Address: addressA + prefix}
	c.B = End{Namespace: r.b.path(), Device: deviceName, Address: addressB + prefix}
	link, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.link = link
	t.Cleanup(func() {
		if err := link.Close(); (err != nil) != r.broken {
			t.Errorf("closing the link: %v", err)
		}
	})
	return r
}

// serve answers each connection to end B with handle until the test ends, and returns
// the address to dial.
func (r *rig) serve(t *testing.T, handle func(net.Conn) error) string {
	t.Helper()
	var listener net.Listener
	err := r.b.do(func() (err error) {
		listener, err = net.Listen("tcp", addressB+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			connections.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(noDeadline))
				if err := handle(conn); err != nil {
					t.Errorf("serving: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		connections.Wait()
	})
	return listener.Addr().String()
}

func (r *rig) dial(t *testing.T, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	err := r.a.do(func() (err error) {
		conn, err = net.DialTimeout("tcp", address, noDeadline)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(noDeadline))
	t.Cleanup(func() { conn.Close() })
	return conn
}

func echo(conn net.Conn) error {
	_, err := io.Copy(conn, conn)
	return err
}

// roundTrips measures n of them, shortest first.
func roundTrips(t *testing.T, conn net.Conn, n int) []time.Duration {
	t.Helper()
	var times []time.Duration
	one := make([]byte, 1)
	for range n {
		start := time.Now()
		if _, err := conn.Write(one); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times
}

func TestLinkDelays(t *testing.T) {
	for _, c := range []struct {
		name        string
		config      Config
		least, most time.Duration
	}{
		{"constant", Config{Delay: 20 * ms, Rate: 250e6}, 40 * ms, 45 * ms},
		{"with jitter", Config{Delay: 20 * ms, Jitter: 5 * ms, Seed: 1}, 30 * ms, 55 * ms},
		{"none", Config{}, 0, 5 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.config)
			times := roundTrips(t, r.dial(t, r.serve(t, echo)), 30)
			t.Logf("round trip: least %v, median %v, most %v", times[0], times[15], times[29])
			if times[0] < c.least {
				t.Errorf("a round trip in %v, at least %v", times[0], c.least)
			}
			// The median: single ones also wait for the machine's other work.
			if times[15] > c.most {
				t.Errorf("the median round trip takes %v, want at most %v", times[15], c.most)
			}
		})
	}
}

// What comes while the link is cut vanishes, and who waits hears nothing, not even that.
func TestACutLink(t *testing.T) {
	const silent = 300 * ms // TCP sends again meanwhile
	r := newRig(t, Config{Delay: ms})
	conn := r.dial(t, r.serve(t, echo))
	roundTrips(t, conn, 1)
	r.link.Cut()
	one := make([]byte, 1)
	if _, err := conn.Write(one); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(silent))
	if _, err := conn.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer over a cut link: error %v", err)
	}
	r.link.Heal()
	conn.SetReadDeadline(time.Now().Add(noDeadline))
	if _, err := io.ReadFull(conn, one); err != nil {
		t.Errorf("over the link that is whole again: %v", err)
	}
	if lost := r.link.Stats().AToB.Dropped; lost == 0 {
		t.Error("no packet was lost")
	}
}

// send makes bytes from a seed, the same on each call.
func send(conn net.Conn, seed byte, size int64) error {
	_, err := io.CopyN(conn, rand.NewChaCha8([32]byte{seed}), size)
	return err
}

func TestLinkCarriesDataWhole(t *testing.T) {
	const size = 20 << 20
	for _, c := range []struct {
		name    string
		config  Config
		streams int
	}{
		{"one stream", Config{Delay: 20 * ms, Rate: 250e6}, 1},
		{"four streams", Config{Delay: 20 * ms, Rate: 250e6}, 4},
		{"through a short queue", Config{Delay: 5 * ms, Rate: 100e6, QueueLimit: 70_000}, 2},
		{"without limits", Config{}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.config)
			each := int64(size / c.streams)
			address := r.serve(t, func(conn net.Conn) error {
				var seed [1]byte
				if _, err := io.ReadFull(conn, seed[:]); err != nil {
					return err
				}
				return send(conn, seed[0], each)
			})
			var conns []net.Conn
			for range c.streams {
				conns = append(conns, r.dial(t, address))
			}
			start := time.Now()
			var streams errgroup.Group
			for i, conn := range conns {
				streams.Go(func() error { return receive(conn, byte(i), each) })
			}
			if err := streams.Wait(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			t.Logf("%.0f Mbit/s; %+v", size*8/took.Seconds()/1e6, r.link.Stats().BToA)
			if rate := c.config.Rate; rate > 0 {
				if least := time.Duration(size * 8 * 1e9 / rate); took < least {
					t.Errorf("%d bytes in %v, at least %v at %d bit/s", size, took, least, rate)
				}
			}
			if got := r.link.Stats().BToA.Bytes; got < size {
				t.Errorf("the link counts %d bytes, at least %d went through it", got, size)
			}
		})
	}
}

// receive asks for the bytes of a seed and compares them.
func receive(conn net.Conn, seed byte, size int64) error {
	if _, err := conn.Write([]byte{seed}); err != nil {
		return err
	}
	got, want := sha256.New(), sha256.New()
	if _, err := io.Copy(got, conn); err != nil {
		return err
	}
	if _, err := io.CopyN(want, rand.NewChaCha8([32]byte{seed}), size); err != nil {
		return err
	}
	if g, w := hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(want.Sum(nil)); g != w {
		return fmt.Errorf("stream %d has digest %s, want %s", seed, g, w)
	}
	return nil
}

func TestCloseLeavesNothing(t *testing.T) {
	r := newRig(t, Config{Delay: time.Hour}) // with packets on their way
	conn := make(chan error, 1)
	go func() {
		conn <- r.a.do(func() error {
			_, err := net.DialTimeout("tcp", addressB+":1", 50*ms)
			return err
		})
	}()
	if err := <-conn; err == nil {
		t.Error("a connection within 50 ms over a link of an hour")
	}
	for range 2 {
		if err := r.link.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []namespace{r.a, r.b} {
		if n.hasDevice(t, deviceName) {
			t.Error("a device is left")
		}
	}
}

func TestFailedOpenLeavesNothing(t *testing.T) {
	a := newNamespace(t)
	_, err := Open(Config{
		A: End{Namespace: a.path(), Device: deviceName, Address: addressA + prefix},
		B: End{Namespace: "/nonexistent", Device: deviceName, Address: addressB + prefix},
	})
	if err == nil {
		t.Fatal("opened")
	}
	if a.hasDevice(t, deviceName) {
		t.Error("the device of the good end is left")
	}
}

func TestOpenRefusesTakenDevice(t *testing.T) {
	r := newRig(t, Config{})
	link, err := Open(Config{
		A: End{Namespace: r.a.path(), Device: deviceName, Address: "10.9.0.1/24"},
		B: End{Namespace: r.b.path(), Device: "emu1", Address: "10.9.0.2/24"},
	})
	if err == nil {
		link.Close()
		t.Fatal("took over another link's device")
	}
}

func TestLinkEndsWithItsDevice(t *testing.T) {
	r := newRig(t, Config{})
	r.broken = true
	h, err := netlink.NewHandleAt(r.b.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	gone, err := h.LinkByName(deviceName)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkDel(gone); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.link.Done():
	case <-time.After(noDeadline):
		t.Fatal("the link goes on without its device")
	}
	if err := r.link.Close(); err == nil {
		t.Error("Close says nothing of the lost device")
	}
}
