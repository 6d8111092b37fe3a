package serve_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// pair are the ends of a connection by a limited listener: the server's and the client's.
func pair(t *testing.T, network, address string) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	limited := serve.Limit(l, serve.Own)
	defer limited.Close()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = limited.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Close(), client.Close() }) // a test may have closed them
	return server, client
}

func fileOf(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err == nil {
		_, err = f.Write(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it was only read from
	return f
}

// A part of a file arrives as it is, whether its reader is fast or slow, with what comes before and after it.
func TestFilesAreSent(t *testing.T) {
	content := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{}).Read(content)
	f := fileOf(t, content)
	for name, in := range map[string]struct {
		network, address string
		rest             time.Duration // between reads
		from, n          int64
	}{
		"fast": {"tcp", "127.0.0.1:0", 0, 0, 40 << 20}, "slow": {"tcp", "127.0.0.1:0", 8 * time.Millisecond, 3, 20 << 20},
		"socket": {"unix", filepath.Join(t.TempDir(), "s"), 0, 1, 17 << 20}, "nothing": {"tcp", "127.0.0.1:0", 0, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := pair(t, in.network, in.address)
			sent := make(chan error, 1)
			go func() {
				_, err := server.Write([]byte("head"))
				if _, failed := f.Seek(in.from, io.SeekStart); failed != nil {
					err = failed
				}
				part := &io.LimitedReader{R: f, N: in.n}
				n, failed := io.Copy(server, part)
				if n != in.n || part.N != 0 {
					err = errors.Join(err, io.ErrShortWrite)
				}
				_, last := server.Write([]byte("tail"))
				sent <- errors.Join(err, failed, last, server.Close())
			}()
			got := sha256.New()
			room := make([]byte, 1<<20)
			for {
				n, err := client.Read(room)
				got.Write(room[:n])
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(in.rest)
			}
			want := sha256.New()
			for _, b := range [][]byte{[]byte("head"), content[in.from : in.from+in.n], []byte("tail")} {
				want.Write(b)
			}
			if err := <-sent; err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("another content arrives: %v", err)
			}
		})
	}
}

// Sending ends with the connection, by its deadline, and with a file that has less than was said.
func TestSendingEnds(t *testing.T) {
	f := fileOf(t, make([]byte, 64<<20))
	for name, end := range map[string]func(server, client net.Conn) error{
		"the reader goes":    func(_, client net.Conn) error { return client.Close() },
		"the server goes":    func(server, _ net.Conn) error { return server.Close() },
		"it is past its end": func(server, _ net.Conn) error { return server.SetWriteDeadline(time.Now()) },
	} {
		server, client := pair(t, "tcp", "127.0.0.1:0")
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := io.Copy(server, &io.LimitedReader{R: f, N: 64 << 20})
			sent <- err
		}()
		if _, err := io.ReadFull(client, make([]byte, 1<<20)); err != nil { // it is under way
			t.Fatal(err)
		}
		if err := end(server, client); err != nil {
			t.Error(err)
		}
		if err := <-sent; err == nil {
			t.Errorf("%s, and all is sent", name)
		}
	}
	server, client := pair(t, "tcp", "127.0.0.1:0")
	go func() { _, _ = io.Copy(io.Discard, client) }() // it ends with the test
	short := fileOf(t, make([]byte, 3000))
	if _, err := short.Seek(1000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(server, &io.LimitedReader{R: short, N: 4000}); n != 2000 || err != nil {
		t.Errorf("of a file that ends: %d, %v", n, err)
	}
}
