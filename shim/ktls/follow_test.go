package ktls

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
)

// kernel does what a kernel would with what it is told of one direction.
type kernel struct {
	aead  cipher.AEAD
	nonce []byte
	count uint64
}

func newKernel(t *testing.T, s suite, d direction) *kernel {
	t.Helper()
	key, nonce, err := s.keys(d.secret)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &kernel{aead, nonce, d.encrypted}
}

func (k *kernel) next() []byte {
	n := bytes.Clone(k.nonce)
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^k.count)
	k.count++
	return n
}

// write writes a record.
func (k *kernel) write(t *testing.T, to io.Writer, data string) {
	t.Helper()
	header := binary.BigEndian.AppendUint16([]byte{typeData, 3, 3}, uint16(len(data)+1+k.aead.Overhead()))
	if _, err := to.Write(k.aead.Seal(header, k.next(), append([]byte(data), typeData), header)); err != nil {
		t.Fatal(err)
	}
}

// read reads a record.
func (k *kernel) read(t *testing.T, from io.Reader) string {
	t.Helper()
	header := make([]byte, headerLength)
	if _, err := io.ReadFull(from, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(from, body); err != nil {
		t.Fatal(err)
	}
	data, err := k.aead.Open(nil, k.next(), body, header)
	if err != nil {
		t.Fatal("decrypting: ", err)
	}
	return string(data[:len(data)-1])
}

// TestRecordsCounted goes on, with the keys and numbers for the kernel, where crypto/tls has stopped.
func TestRecordsCounted(t *testing.T) {
	own := certificate(t)
	long := make([]byte, 100<<10)
	rand.Read(long)
	for name, c := range map[string]struct {
		suite          uint16
		client, server *tls.Config
		sent, received [][]byte
		silent         bool // the handshake is made by the first write
	}{
		"at once": {suite: tls.TLS_AES_128_GCM_SHA256},
		"AES 256": {suite: tls.TLS_AES_256_GCM_SHA384, sent: [][]byte{{1}}, received: [][]byte{long}},
		"after data": {
			suite: tls.TLS_AES_128_GCM_SHA256, sent: [][]byte{{1}, long, {2}}, received: [][]byte{long, {3}, {4}},
		},
		"by a first write": {suite: tls.TLS_AES_128_GCM_SHA256, silent: true, sent: [][]byte{{1}}, received: [][]byte{{2}}},
		"tickets": {
			suite:    tls.TLS_AES_128_GCM_SHA256,
			client:   &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "server"},
			received: [][]byte{{1}},
		},
		"client's certificate": {
			suite:  tls.TLS_AES_128_GCM_SHA256,
			client: &tls.Config{Certificates: []tls.Certificate{own}},
			server: &tls.Config{ClientAuth: tls.RequireAnyClientCert},
			sent:   [][]byte{{1}},
		},
		"a certificate asked for": {
			suite: tls.TLS_AES_128_GCM_SHA256, server: &tls.Config{ClientAuth: tls.RequestClientCert}, sent: [][]byte{{1}},
		},
		"second hello": {
			suite:  tls.TLS_AES_128_GCM_SHA256,
			server: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}},
			sent:   [][]byte{{1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			speak(t, c.suite)
			dial := serve(t, cmp.Or(c.server, &tls.Config{}), func(_ net.Conn, conn *tls.Conn) {
				for _, b := range c.sent {
					io.ReadFull(conn, make([]byte, len(b)))
				}
				if conn.Handshake() != nil {
					return
				}
				for _, b := range c.received {
					conn.Write(b)
				}
				word := make([]byte, 4)
				for {
					if _, err := io.ReadFull(conn, word); err != nil {
						return
					}
					conn.Write(word)
				}
			})
			client := cmp.Or(c.client, &tls.Config{})
			client.InsecureSkipVerify = true
			conn := connect(t, dial, client)
			if !c.silent {
				if err := conn.Handshake(); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range c.sent {
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range c.received {
				got := make([]byte, len(b))
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, b) {
					t.Fatal(err)
				}
			}
			secured, f, s := prepared(conn)
			if f == nil {
				t.Fatal("it is not prepared")
			}
			if err := f.empty(secured); err != nil {
				t.Fatal(err)
			}
			in, out := newKernel(t, s, f.in), newKernel(t, s, f.out)
			for _, word := range []string{"ping", "pong"} {
				out.write(t, f.Conn, word)
				if got := in.read(t, f.Conn); got != word {
					t.Errorf("%q", got)
				}
			}
		})
	}
}

// TestLeftAsItIs has connections that the kernel cannot take.
func TestLeftAsItIs(t *testing.T) {
	echo := func(_ net.Conn, conn *tls.Conn) { io.Copy(conn, conn) }
	say := func(t *testing.T, c net.Conn) {
		t.Helper()
		got := make([]byte, 2)
		if _, err := c.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hi" {
			t.Fatal(string(got), err)
		}
	}
	same := func(t *testing.T, c net.Conn) {
		t.Helper()
		got, err := Kernel(c)
		if got != c || err != nil {
			t.Fatal(got, err)
		}
		say(t, c)
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		conn := connect(t, serve(t, &tls.Config{MaxVersion: tls.VersionTLS12}, echo), insecure())
		say(t, conn)
		same(t, conn)
	})
	t.Run("before the handshake", func(t *testing.T) {
		same(t, connect(t, serve(t, &tls.Config{}, echo), insecure()))
	})
	t.Run("not prepared", func(t *testing.T) {
		raw, err := serve(t, &tls.Config{}, echo)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		conn := tls.Client(raw, insecure())
		say(t, conn)
		same(t, conn)
	})
	t.Run("after a look at whether it is empty", func(t *testing.T) {
		conn := connect(t, serve(t, &tls.Config{}, echo), insecure())
		say(t, conn)
		_, f, _ := prepared(conn)
		if err := f.empty(conn); err != nil {
			t.Fatal(err)
		}
		say(t, conn)
	})
}

func TestUnreadIsNoticed(t *testing.T) {
	conn := connect(t, serve(t, &tls.Config{}, func(_ net.Conn, c *tls.Conn) { c.Write([]byte("hello")) }), insecure())
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got, err := Kernel(conn); err == nil {
		t.Error(got)
	}
	if _, err := conn.NetConn().Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestRequestBefore has bytes pass before TLS begins, as PostgreSQL's do.
func TestRequestBefore(t *testing.T) {
	request := []byte{0, 0, 0, 8, 4, 210, 22, 47}
	dial := serve(t, &tls.Config{}, func(raw net.Conn, c *tls.Conn) {
		io.ReadFull(raw, make([]byte, len(request)))
		raw.Write([]byte{'S'})
		c.Handshake()
	})
	dial, config := follow(dial, insecure())
	raw, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(raw, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, f, _ := prepared(conn); f == nil || f.out.encrypted != 0 || f.in.encrypted != 0 {
		t.Errorf("%+v", f)
	}
}

func TestSecretsForgotten(t *testing.T) {
	conn := connect(t, serve(t, &tls.Config{}, func(_ net.Conn, c *tls.Conn) { io.Copy(io.Discard, c) }), insecure())
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	_, f, _ := prepared(conn)
	in, out := f.in.secret, f.out.secret
	if bytes.Equal(in, make([]byte, len(in))) || len(in) != len(out) {
		t.Fatal("no secret")
	}
	kept, err := Kernel(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if !bytes.Equal(in, make([]byte, len(in))) || !bytes.Equal(out, make([]byte, len(out))) {
		t.Error("a secret is still there")
	}
}

func FuzzDirection(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 1, 9, 23, 3, 3, 0, 2, 1, 1, 20, 3, 3, 0, 1, 1, 23, 3, 3}, 3)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		var whole, pieces direction
		whole.note(b)
		for rest := b; len(rest) > 0; {
			n := min(len(rest), max(1, piece%7), pieces.wants())
			pieces.note(rest[:n])
			rest = rest[n:]
		}
		if whole.encrypted != pieces.encrypted || whole.whole() != pieces.whole() || whole.wants() != pieces.wants() {
			t.Errorf("%+v, in pieces %+v", whole, pieces)
		}
		if whole.wants() <= 0 {
			t.Errorf("%+v wants nothing", whole)
		}
	})
}

// The stream below TLS can be found, to abort it.
func TestTheStreamBelow(t *testing.T) {
	below, other := net.Pipe()
	defer other.Close()
	dial, config := follow(func(context.Context) (net.Conn, error) { return below, nil }, &tls.Config{MinVersion: tls.VersionTLS13})
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, is := tls.Client(conn, config).NetConn().(interface{ NetConn() net.Conn }); !is || got.NetConn() != below {
		t.Errorf("below TLS is %v", got)
	}
}
