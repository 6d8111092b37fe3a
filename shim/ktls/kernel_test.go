//go:build ktls

package ktls

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
)

// What another process of a test is: it gets a socket pair's end as its first extra descriptor.
const (
	roleEnv  = "KTLS_ROLE"
	roleMake = "make" // makes a connection, and sends it
	roleUse  = "use"  // receives a connection, and uses it
	serverAt = "KTLS_SERVER"
)

// patience is how long a connection may take for all that a test does.
const patience = 20 * time.Second

var allSuites = []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func echo(_ net.Conn, c *tls.Conn) {
	io.Copy(c, c)
	c.CloseWrite()
}

// taken makes a connection by Prepare and Kernel.
func taken(t *testing.T, dial Dial, config *tls.Config, before func(*tls.Conn)) *net.TCPConn {
	t.Helper()
	dial, config = Prepare(dial, config)
	raw, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(conn)
	}
	raw.SetDeadline(time.Now().Add(patience))
	began := time.Now()
	got, err := Kernel(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("given to the kernel in", time.Since(began)) // emulated
	socket, is := got.(*plaintext.Conn)
	if !is {
		t.Fatalf("the kernel has not taken it: %T", got)
	}
	conn.Close() // as somebody does who knows only of what it was: it says nothing to the server
	t.Cleanup(func() { socket.Close() })
	return socket.TCPConn
}

// exchange has an echo return what it is sent.
func exchange(t *testing.T, c io.ReadWriter, sizes ...int) {
	t.Helper()
	for _, size := range sizes {
		sent, got := random(size), make([]byte, size)
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			written <- err
		}()
		_, err := io.ReadFull(c, got)
		if err := errors.Join(err, <-written); err != nil || !bytes.Equal(sent, got) {
			t.Fatalf("%d bytes: %v, the same: %v", size, err, bytes.Equal(sent, got))
		}
	}
}

// TestProbe has the kernel load its module: nobody has done so before, and the kernel asks TestMain for it.
func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
}

func TestSuites(t *testing.T) {
	for _, suite := range allSuites {
		t.Run(tls.CipherSuiteName(suite), func(t *testing.T) {
			speak(t, suite)
			socket := taken(t, serve(t, &tls.Config{}, echo), insecure(), func(c *tls.Conn) { exchange(t, c, 5, 40_000) })
			exchange(t, socket, 1, 64, 16<<10, 16<<10+1, 1<<20) // by a program that knows nothing of it
			exchange(t, plaintext.Of(socket).(*plaintext.Conn), 1, 64, 16<<10, 16<<10+1, 1<<20)
		})
	}
}

// TestAtOnce has nothing pass before the kernel takes the connection but what the server has sent already.
func TestAtOnce(t *testing.T) {
	said := make(chan struct{})
	socket := taken(t, serve(t, &tls.Config{}, func(raw net.Conn, c *tls.Conn) {
		c.Write([]byte("hello"))
		close(said)
		echo(raw, c)
	}), insecure(), func(*tls.Conn) { <-said })
	got := make([]byte, 5)
	if _, err := io.ReadFull(socket, got); err != nil || string(got) != "hello" {
		t.Fatal(string(got), err)
	}
	exchange(t, socket, 1000)
}

func withTickets() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "server", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

func TestTicketsDrained(t *testing.T) {
	ready := make(chan struct{})
	socket := taken(t, serve(t, &tls.Config{}, func(raw net.Conn, c *tls.Conn) {
		c.Handshake()
		close(ready)
		echo(raw, c)
	}), withTickets(), func(*tls.Conn) { <-ready })
	exchange(t, socket, 100)
}

// gate lets no second read through before it is opened.
type gate struct {
	net.Conn
	reads int
	open  chan struct{}
}

func (g *gate) Read(b []byte) (int, error) {
	if g.reads++; g.reads > 2 { // the header and the body of the ClientHello
		<-g.open
	}
	return g.Conn.Read(b)
}

// TestTicketsLater has tickets come when the kernel has the connection already.
func TestTicketsLater(t *testing.T) {
	connected := func(t *testing.T) *net.TCPConn {
		open, ready := make(chan struct{}), make(chan struct{})
		// A server that asks for a certificate sends tickets at the handshake's end only.
		config := &tls.Config{ClientAuth: tls.RequestClientCert}
		socket := taken(t, serve(t, config, func(raw net.Conn, _ *tls.Conn) {
			c := tls.Server(&gate{Conn: raw, open: open}, config)
			c.Handshake()
			close(ready)
			echo(raw, c)
		}), withTickets(), nil)
		close(open)
		<-ready
		return socket
	}
	t.Run("a program's read fails", func(t *testing.T) {
		if n, err := connected(t).Read(make([]byte, 1)); !errors.Is(err, unix.EIO) {
			t.Error(n, err)
		}
	})
	t.Run("after a failed read it goes on", func(t *testing.T) {
		socket := connected(t)
		socket.Read(make([]byte, 1))
		exchange(t, plaintext.Of(socket).(*plaintext.Conn), 100)
	})
	t.Run("skipped", func(t *testing.T) {
		exchange(t, plaintext.Of(connected(t)).(*plaintext.Conn), 100)
	})
	t.Run("drained", func(t *testing.T) {
		socket := connected(t)
		if err := plaintext.Drain(socket); err != nil {
			t.Fatal(err)
		}
		exchange(t, socket, 100)
	})
	t.Run("drained before data", func(t *testing.T) {
		socket := connected(t)
		socket.Write([]byte("hello"))
		raw, _ := socket.SyscallConn()
		raw.Read(func(fd uintptr) bool { // until the first record is there
			_, _, _, _, err := unix.Recvmsg(int(fd), make([]byte, 1), make([]byte, 64), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return err == nil
		})
		for range 3 {
			if err := plaintext.Drain(socket); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(socket, got); err != nil || string(got) != "hello" {
			t.Error(string(got), err)
		}
	})
	t.Run("spliced", func(t *testing.T) {
		n, err := spliced(connected(t))
		t.Log("splice at a ticket:", n, err)
		if err == nil {
			t.Error("splice does not fail at a ticket any more")
		}
	})
}

// spliced splices from a connection into a pipe.
func spliced(c *net.TCPConn) (n int64, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	outer := raw.Read(func(fd uintptr) bool {
		n, err = unix.Splice(int(fd), nil, p[1], nil, 64<<10, unix.SPLICE_F_NONBLOCK)
		return !errors.Is(err, unix.EAGAIN)
	})
	return n, errors.Join(outer, err)
}

// secretServer is a server whose own records the test writes. Its client is the kernel's.
func secretServer(t *testing.T, say func(raw net.Conn, k *kernel)) *net.TCPConn {
	t.Helper()
	speak(t, tls.TLS_AES_128_GCM_SHA256)
	f := &follower{}
	config := &tls.Config{KeyLogWriter: keyLog{f}}
	taking := make(chan struct{})
	socket := taken(t, serve(t, config, func(raw net.Conn, c *tls.Conn) {
		if c.Handshake() != nil {
			return
		}
		<-taking
		// Its labels are the client's: what comes "from there" is what this server writes.
		say(raw, newKernel(t, suites[tls.TLS_AES_128_GCM_SHA256], direction{secret: f.in.secret}))
		io.Copy(io.Discard, raw)
	}), insecure(), nil)
	close(taking)
	return socket
}

// record writes a record of any type.
func (k *kernel) record(to io.Writer, kind byte, body string) {
	header := binary.BigEndian.AppendUint16([]byte{typeData, 3, 3}, uint16(len(body)+1+k.aead.Overhead()))
	to.Write(k.aead.Seal(header, k.next(), append([]byte(body), kind), header))
}

func TestEnds(t *testing.T) {
	const keyUpdate, alert = "\x18\x00\x00\x01\x00", 21
	for name, c := range map[string]struct {
		say   func(raw net.Conn, k *kernel)
		want  error
		words string
	}{
		"key update": {want: plaintext.ErrRekeyed, say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "hello")
			k.record(raw, typeHandshake, keyUpdate)
			k.record(raw, typeData, "more") // whatever it is encrypted with
		}},
		"close_notify": {want: io.EOF, say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "hello")
			k.record(raw, alert, "\x01\x00")
		}},
		"FIN": {want: io.EOF, say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "hello")
			raw.(*net.TCPConn).CloseWrite()
		}},
		"alert": {words: "alert 80", say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "hello")
			k.record(raw, alert, "\x02\x50")
		}},
		"not authentic": {want: unix.EBADMSG, say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "hello")
			raw.Write(append([]byte{typeData, 3, 3, 0, 40}, make([]byte, 40)...))
		}},
		"an empty record is none": {want: io.EOF, say: func(raw net.Conn, k *kernel) {
			k.record(raw, typeData, "")
			k.record(raw, typeData, "hello")
			k.record(raw, typeData, "")
			k.record(raw, alert, "\x01\x00")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(plaintext.Of(secretServer(t, c.say)))
			if err == nil {
				err = io.EOF
			}
			if string(got) != "hello" || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%q %v", got, err)
			}
		})
		t.Run(name+", for a program", func(t *testing.T) {
			// To read(2) all ends are errors but FIN.
			got, err := io.ReadAll(secretServer(t, c.say))
			if string(got) != "hello" || errors.Is(err, os.ErrDeadlineExceeded) || (err == nil) != (name == "FIN") {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}

// last is a stream that knows the last record's length.
type last struct {
	net.Conn
	in direction
}

func (l *last) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b[:min(len(b), l.in.wants())])
	l.in.note(b[:n])
	return n, err
}

// TestOwnEnd ends this side: the server is told by TLS, and can still answer.
func TestOwnEnd(t *testing.T) {
	config, lengths := &tls.Config{}, make(chan int, 1)
	socket := taken(t, serve(t, config, func(raw net.Conn, _ *tls.Conn) {
		l := &last{Conn: raw}
		c := tls.Server(l, config)
		got, err := io.ReadAll(c)
		lengths <- int(binary.BigEndian.Uint16(l.in.header[headerLength-2:]))
		fmt.Fprint(c, string(got), err)
		c.CloseWrite()
	}), insecure(), nil)
	c := plaintext.Of(socket).(*plaintext.Conn)
	c.Write([]byte("hello"))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	const alertRecord = 2 + 1 + 16
	if length := <-lengths; string(got) != "hello<nil>" || err != nil || length != alertRecord {
		t.Errorf("%q %v, last record %d", got, err, length)
	}
}

// TestJoined joins a program's connection as a sandbox's shim does, by unix(7) and by TCP.
func TestJoined(t *testing.T) {
	for name, program := range map[string]func(t *testing.T) (mine, other net.Conn){"unix": unixPair, "TCP": tcpPair} {
		t.Run(name, func(t *testing.T) {
			speak(t, tls.TLS_AES_128_GCM_SHA256)
			const size = 4 << 20
			server := plaintext.Of(taken(t, serve(t, &tls.Config{}, echo), insecure(), nil)).(*plaintext.Conn)
			mine, other := program(t)
			joined := make(chan error, 2)
			go func() {
				_, err := io.Copy(server, other)
				joined <- errors.Join(err, server.CloseWrite())
			}()
			go func() {
				_, err := io.Copy(other, server)
				joined <- errors.Join(err, other.(interface{ CloseWrite() error }).CloseWrite())
			}()
			exchange(t, mine, 1, 64)
			sent := random(size)
			go func() {
				mine.Write(sent)
				mine.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(mine)
			if err := errors.Join(err, <-joined, <-joined); err != nil || !bytes.Equal(got, sent) {
				t.Error(len(got), err)
			}
		})
	}
}

// TestSpliced has splice(2) move data in both directions, a few segments at a time.
func TestSpliced(t *testing.T) {
	socket := taken(t, serve(t, &tls.Config{}, echo), insecure(), nil)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	sent := random(40_000)
	if n, err := unix.Write(p[1], sent); n != len(sent) || err != nil {
		t.Fatal(n, err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	outer := raw.Control(func(fd uintptr) { n, err = unix.Splice(p[0], nil, int(fd), nil, len(sent), 0) })
	if err := errors.Join(outer, err); n != int64(len(sent)) || err != nil {
		t.Fatal(n, err)
	}
	calls := 0
	for all := int64(0); all < int64(len(sent)); calls++ {
		n, err := spliced(socket)
		if err != nil || n == 0 {
			t.Fatal(all, n, err)
		}
		all += n
	}
	t.Logf("%d bytes back by %d calls", len(sent), calls)
}

func unixPair(t *testing.T) (mine, other net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var pair [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		if pair[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pair[i].Close() })
	}
	return pair[0], pair[1]
}

func tcpPair(t *testing.T) (mine, other net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if mine, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if other, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mine.Close(); other.Close() })
	return mine, other
}

// TestOutlivesItsMaker has one process make a connection and end, and another one use it.
func TestOutlivesItsMaker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		echo(raw, tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
	}()
	defer func() { l.Close(); <-served }()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, role := range []string{roleMake, roleUse} {
		f := os.NewFile(uintptr(fds[i]), role)
		defer f.Close()
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), roleEnv+"="+role, serverAt+"="+l.Addr().String())
		cmd.ExtraFiles = []*os.File{f}
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", role, err, said)
		}
		t.Logf("%s: %s", role, said)
	}
}

// play is what another process of TestOutlivesItsMaker does.
func play(role string) error {
	const end = 3 // the first extra descriptor
	if role == roleMake {
		dial, config := Prepare(func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", os.Getenv(serverAt))
		}, insecure())
		raw, err := dial(context.Background())
		if err != nil {
			return err
		}
		conn := tls.Client(raw, config)
		if err := conn.Handshake(); err != nil {
			return err
		}
		got, err := Kernel(conn)
		if err != nil {
			return err
		}
		f, err := got.(*plaintext.Conn).File()
		if err != nil {
			return err
		}
		return unix.Sendmsg(end, []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0)
	}
	space := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(end, make([]byte, 1), space, 0)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fds[0]), "received")
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	if _, is := plaintext.Of(conn).(*plaintext.Conn); !is {
		return errors.New("the kernel does no TLS on it")
	}
	for i := range 100 {
		word, got := fmt.Sprintf("word %3d", i), make([]byte, 8)
		if _, err := conn.Write([]byte(word)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
			return fmt.Errorf("%q %w", got, err)
		}
	}
	return nil
}
