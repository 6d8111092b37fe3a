//go:build integration

package ingress_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// python runs a function in Python that reads its inputs in dir as files, and no bodies.
func python(t *testing.T, kind, dir string) netip.AddrPort {
	t.Helper()
	cmd := exec.Command("python3", "testdata/reader.py", kind, dir)
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the function does not start: %v", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
}

// The servers that come with Python do not read a body which their handlers leave alone. No
// answer is lost with it.
func TestPythonsServersNeedNotReadTheirBodies(t *testing.T) {
	for _, kind := range []string{"HTTP/1.0", "HTTP/1.1", "wsgi"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, nil)
			r.instances.address = python(t, kind, r.dir)
			for _, size := range []int{1 << 10, 1 << 20, inputLimit} {
				content := make([]byte, size)
				_, _ = rand.NewChaCha8([32]byte{byte(size >> 10)}).Read(content)
				want := sha256.Sum256(content)
				ref := r.put(strconv.Itoa(size), "", content)
				for range 25 {
					resp := r.do(t, request(t, http.MethodGet, withInput, newID(), ref, nil))
					if got, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(got) != hex.EncodeToString(want[:]) || err != nil {
						t.Fatalf("%d bytes: %d %q, %v", size, resp.StatusCode, got, err)
					}
				}
			}
		})
	}
}
