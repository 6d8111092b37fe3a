package coalesce_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/coalesce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a connection that coalesces, and its other side.
func pair(t testing.TB) (reads net.Conn, writes *net.TCPConn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := coalesce.Listener(inner)
	defer l.Close()
	other, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), other.Close() })
	return c, other.(*net.TCPConn)
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// Whatever comes is read, to the last byte, though the connection goes on: after much, after
// little, and after much again.
func TestNothingIsWaitedForThatDoesNotCome(t *testing.T) {
	c, other := pair(t)
	for _, n := range []int{1, 100, 4 << 20, 1, 31 << 10, 33 << 10, 1<<20 + 1, 7} {
		want := content(n)
		sent := make(chan error, 1)
		go func() {
			_, err := other.Write(want)
			sent <- err
		}()
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("of %d bytes: %v", n, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

// The end is heard at once, behind all that came before it.
func TestTheEnd(t *testing.T) {
	c, other := pair(t)
	want := content(1<<20 + 5)
	go func() {
		_, _ = other.Write(want)
		_ = other.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes: %v", len(got), len(want), err)
	}
}

// A read that waits for a lot ends with the connection.
func TestCloseEndsARead(t *testing.T) {
	c, other := pair(t)
	if _, err := other.Write(content(256 << 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 256<<10)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it has read something")
	}
}

// BenchmarkFastStream is a stream of 30 MB/s that comes packet by packet: how many reads each of
// these takes, and how much of a core the reader. Without coalescing it is one read for each.
func BenchmarkFastStream(b *testing.B) {
	const packet, every = 1448, 48 * time.Microsecond
	c, other := pair(b)
	packets := b.N
	go func() {
		p, due := content(packet), time.Now()
		for range packets {
			for due = due.Add(every); time.Now().Before(due); {
			}
			_, _ = other.Write(p)
		}
	}()
	reads, buf := 0, make([]byte, 64<<10)
	for got := 0; got < packets*packet; reads++ {
		n, err := c.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		got += n
	}
	b.SetBytes(packet)
	b.ReportMetric(float64(reads)/float64(packets), "reads/packet")
}
