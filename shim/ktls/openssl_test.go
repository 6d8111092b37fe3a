//go:build ktls

package ktls

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
)

// opensslAt is the guest's own address for OpenSSL's server.
const opensslAt = "127.0.0.1:4433"

// openssl runs OpenSSL's server, which PostgreSQL and Redis have. It sends what is written to it, and does what single
// letters say. It returns what the server writes.
func openssl(t *testing.T, suite uint16) (commands io.Writer, said *bufio.Reader) {
	t.Helper()
	c := certificate(t)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/openssl", "s_server", "-accept", opensslAt, "-cert", file, "-key", file,
		"-ciphersuites", tls.CipherSuiteName(suite), "-naccept", "1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	said = bufio.NewReader(out)
	await(t, said, "ACCEPT")
	return in, said
}

// await reads up to a line with a word.
func await(t *testing.T, said *bufio.Reader, word string) {
	t.Helper()
	for {
		line, err := said.ReadString('\n')
		if strings.Contains(line, word) {
			return
		}
		if err != nil {
			t.Fatalf("the server does not say %q: %v", word, err)
		}
	}
}

func TestOpenSSL(t *testing.T) {
	for _, suite := range allSuites {
		t.Run(tls.CipherSuiteName(suite), func(t *testing.T) {
			for name, c := range map[string]struct {
				command string
				want    error
			}{
				"key update":           {"k\n", plaintext.ErrRekeyed},
				"key update asked for": {"K\n", plaintext.ErrRekeyed},
				"end":                  {"Q\n", io.EOF},
			} {
				t.Run(name, func(t *testing.T) {
					commands, said := openssl(t, suite)
					socket := taken(t, func(ctx context.Context) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "tcp", opensslAt)
					}, withTickets(), nil)
					conn := plaintext.Of(socket)
					for range 3 {
						io.WriteString(commands, "hello\n")
						got := make([]byte, 6)
						if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello\n" {
							t.Fatalf("%q %v", got, err)
						}
						io.WriteString(conn, "a word\n")
						await(t, said, "a word")
					}
					io.WriteString(commands, c.command)
					if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, c.want) {
						t.Error(n, err)
					}
				})
			}
		})
	}
}
