package endpoints_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
)

// wantReset sees a connection end with an error that its program cannot take for an answer.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := answer(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("answered %q, %v, want a reset", got, err)
	}
}

// wantRefused sees a new connection end in that way, which may be before it is there.
func wantRefused(t *testing.T, l *net.TCPListener) {
	t.Helper()
	c, err := ask(l)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantReset(t, c)
}

// refusing is a daemon that knows no sandbox.
type refusing struct{}

func (refusing) Serve(_ context.Context, _ endpoints.Offer, l net.Listener) { l.Close() }
func (refusing) Left(endpoints.Offer)                                       {}

// What a program asks before the daemon is there is answered by it.
func TestConnectionsWaitForTheDaemon(t *testing.T) {
	hasten(t, time.Millisecond, time.Hour)
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	var waiting []net.Conn
	for range 3 {
		waiting = append(waiting, question(t, l))
	}
	keep(t, socket, l)
	waiting = append(waiting, question(t, l))
	d.start(t, listen(t, socket))
	for _, c := range waiting {
		wantAnswer(t, c, "daemon")
	}
}

// No connection is lost while a daemon is replaced, by one that starts after its end or before that.
func TestTheDaemonIsReplaced(t *testing.T) {
	for name, replace := range map[string]func(stop, begin, between func()){
		"restarted":  func(stop, begin, between func()) { stop(); between(); begin() },
		"taken over": func(stop, begin, between func()) { begin(); between(); stop() },
	} {
		t.Run(name, func(t *testing.T) {
			hasten(t, time.Millisecond, time.Hour)
			socket, l := path(t), loopback(t)
			first, second := newDaemon("first"), newDaemon("second")
			stop := first.start(t, listen(t, socket))
			keep(t, socket, l)
			wantAnswer(t, question(t, l), "first")
			// A program goes on asking all the time.
			var asking sync.WaitGroup
			asked, enough := make(chan struct{}), make(chan struct{})
			begun := sync.OnceFunc(func() { close(asked) })
			asking.Go(func() {
				for over := false; !over; {
					c, err := ask(l)
					if err != nil {
						t.Error(err)
						return
					}
					if by, err := answer(c); by != first.name && by != second.name || err != nil {
						t.Errorf("answered %q, %v", by, err)
					}
					c.Close()
					begun()
					select {
					case <-enough:
						over = true
					default:
					}
				}
			})
			receive(t, asked)
			var waiting []net.Conn
			replace(stop, func() { second.start(t, listen(t, socket)) }, func() {
				for range 3 {
					waiting = append(waiting, question(t, l))
				}
			})
			if got := receive(t, second.served); got != mine {
				t.Errorf("served %+v, want %+v", got, mine)
			}
			wantAnswer(t, question(t, l), "second")
			for _, c := range waiting {
				by, err := answer(c)
				if err != nil || by != "second" && (name == "restarted" || by != "first") {
					t.Errorf("one that waited is answered %q, %v", by, err)
				}
			}
			close(enough)
			asking.Wait()
		})
	}
}

// A daemon that stays away has connections fail at once, and is found again.
func TestADaemonThatStaysAway(t *testing.T) {
	hasten(t, 20*time.Millisecond, 20*time.Millisecond)
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	before := question(t, l)
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	keep(t, socket, l)
	wantReset(t, before)
	wantReset(t, silent)
	wantRefused(t, l)
	d.start(t, listen(t, socket))
	receive(t, d.served)
	wantAnswer(t, question(t, l), "daemon")
}

// Between two looks for the daemon a connection does not wait for the next one.
func TestConnectionsFailAtOnce(t *testing.T) {
	hasten(t, time.Hour, 0)
	socket, l := path(t), loopback(t)
	keep(t, socket, l)
	for range 3 {
		wantRefused(t, l) // within much less than an hour
	}
}

// Patience begins with the end of a daemon, however long that one has served.
func TestPatienceBeginsWithEachLoss(t *testing.T) {
	const wait = endpoints.Timeout + 100*time.Millisecond // the bound of a hand-over is none of what is served
	hasten(t, time.Millisecond, wait)
	socket, l := path(t), loopback(t)
	first, second := newDaemon("first"), newDaemon("second")
	stop := first.start(t, listen(t, socket))
	keep(t, socket, l)
	receive(t, first.served)
	<-time.After(wait)
	wantAnswer(t, question(t, l), "first")
	if n := len(first.served); n > 0 {
		t.Errorf("served %d times more", n)
	}
	stop()
	waiting := question(t, l)
	second.start(t, listen(t, socket))
	wantAnswer(t, waiting, "second")
}

// A daemon that does not serve the sandbox counts as one that is away: a program must not wait indefinitely.
func TestADaemonThatRefuses(t *testing.T) {
	hasten(t, 50*time.Millisecond, time.Millisecond)
	socket, l := path(t), loopback(t)
	start(t, listen(t, socket), refusing{})
	waiting := question(t, l)
	keep(t, socket, l)
	wantReset(t, waiting)
	wantRefused(t, l)
}

// draining is a daemon that has requests to answer when it is to end.
type draining struct{ serves, goesOn chan struct{} }

func (d draining) Serve(ctx context.Context, _ endpoints.Offer, l net.Listener) {
	close(d.serves)
	<-ctx.Done()
	l.Close()
	<-d.goesOn
}

func (draining) Left(endpoints.Offer) {}

// The next daemon has the listener while the one before it still answers.
func TestADaemonThatDrains(t *testing.T) {
	hasten(t, time.Millisecond, time.Hour)
	socket, l := path(t), loopback(t)
	first, second := draining{make(chan struct{}), make(chan struct{})}, newDaemon("second")
	stop := start(t, listen(t, socket), first)
	keep(t, socket, l)
	receive(t, first.serves)
	second.start(t, listen(t, socket))
	var stopping sync.WaitGroup
	stopping.Go(stop)
	wantAnswer(t, question(t, l), "second")
	close(first.goesOn)
	stopping.Wait()
}

// Keep ends with its context, whatever it does.
func TestKeepEnds(t *testing.T) {
	for name, c := range map[string]struct {
		wait  time.Duration
		reach func(t *testing.T, socket string, l *net.TCPListener, keep func())
	}{
		"while it looks for a daemon": {time.Hour, func(_ *testing.T, _ string, _ *net.TCPListener, keep func()) {
			keep()
		}},
		"while it refuses": {0, func(t *testing.T, _ string, l *net.TCPListener, keep func()) {
			keep()
			wantRefused(t, l)
		}},
		"while it is served": {time.Hour, func(t *testing.T, socket string, l *net.TCPListener, keep func()) {
			d := newDaemon("daemon")
			d.start(t, listen(t, socket))
			keep()
			receive(t, d.served)
		}},
		"when a daemon was lost": {time.Hour, func(t *testing.T, socket string, l *net.TCPListener, keep func()) {
			d := newDaemon("daemon")
			stop := d.start(t, listen(t, socket))
			keep()
			receive(t, d.served)
			stop()
		}},
		"without a listener": {0, func(_ *testing.T, _ string, l *net.TCPListener, keep func()) {
			l.Close()
			keep()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			hasten(t, time.Hour, c.wait)
			socket, l := path(t), loopback(t)
			var stop func()
			c.reach(t, socket, l, func() { stop = keep(t, socket, l) })
			stop()
		})
	}
}

// A context that has ended before is no reason to offer anything.
func TestKeepOfNothing(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	d.start(t, listen(t, socket))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	endpoints.Keep(ctx, socket, mine, l)
	if err := endpoints.Tell(ctx, socket, mine); !errors.Is(err, context.Canceled) {
		t.Errorf("told: %v", err)
	}
	if len(d.served)+len(d.left) != 0 {
		t.Error("the daemon has heard of it")
	}
}

// earlier is a daemon that does not know of directories: it takes one descriptor, and ends the connection at more.
func earlier(t *testing.T, socket string) (descriptors <-chan int) {
	t.Helper()
	got := make(chan int, 16)
	l := listen(t, socket)
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		var kept []net.Conn
		defer func() {
			for _, c := range kept {
				c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			of := c
			for {
				counted, is := of.(interface{ NetConn() net.Conn })
				if !is {
					break
				}
				of = counted.NetConn()
			}
			control := make([]byte, 64)
			_, n, _, _, err := of.(*net.UnixConn).ReadMsgUnix(make([]byte, 1024), control)
			if err != nil {
				c.Close()
				continue
			}
			count := 0
			messages, _ := unix.ParseSocketControlMessage(control[:n])
			for _, m := range messages {
				fds, _ := unix.ParseUnixRights(&m)
				for _, fd := range fds {
					unix.Close(fd)
				}
				count += len(fds)
			}
			got <- count
			if count > 1 {
				c.Close()
				continue
			}
			kept = append(kept, c)
		}
	}()
	return got
}

// A daemon of before directories, which an operator has gone back to, gets the listener alone.
func TestAnEarlierDaemonGetsTheListenerAlone(t *testing.T) {
	hasten(t, time.Millisecond, time.Hour)
	socket, l := path(t), loopback(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	offer := mine
	offer.Output = dir
	got := earlier(t, socket)
	keepOffer(t, socket, l, offer)
	for i, want := range []int{2, 2, 2, 1} {
		if n := receive(t, got); n != want {
			t.Errorf("hand-over %d has %d descriptors, want %d", i, n, want)
		}
	}
}
