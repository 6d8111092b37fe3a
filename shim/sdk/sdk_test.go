package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// rootVariable names the environment variable by which this program is one that connects.
const rootVariable = "HEADSTART_TEST_ROOT"

func TestMain(m *testing.M) {
	if root = os.Getenv(rootVariable); root == "" {
		goleak.VerifyTestMain(m)
		return
	}
	var said []string
	for _, name := range os.Args[2:] {
		c, err := Connect(context.Background(), name, os.Args[1])
		if err != nil {
			said = append(said, err.Error())
			continue
		}
		b, err := io.ReadAll(c)
		said = append(said, fmt.Sprint(string(b), err))
	}
	_ = json.NewEncoder(os.Stdout).Encode(said)
}

const python = `
import json, os, sys
import headstart
headstart.ROOT = os.environ["HEADSTART_TEST_ROOT"]
said = []
for name in sys.argv[2:]:
    host, port = sys.argv[1].split(":")
    with headstart.connect(name, (host, int(port)), 10) as s:
        assert not s.get_inheritable(), name
        said.append(s.makefile().read() + "<nil>")
print(json.dumps(said))
`

// saying returns the descriptor of a connection whose server says something and ends it, or has ended it.
func saying(t *testing.T, what string) *os.File {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fds[0], []byte(what)); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(fds[0]) // what was written stays
	return os.NewFile(uintptr(fds[1]), what)
}

// serve takes connections until the test ends.
func serve(t *testing.T, network, address string, answer func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l
}

// The inherited connection comes first and once, then the daemon's, and where there is none, or it has ended, the
// program dials.
func TestConnect(t *testing.T) {
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"orders", "2nd-db", "odd"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"orders", "2nd-db"} {
		serve(t, "unix", filepath.Join(dir, name, "descriptor.sock"), func(c net.Conn) {
			f := saying(t, "fetched")
			defer f.Close()
			if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte{1}, syscall.UnixRights(int(f.Fd())), nil); err != nil {
				t.Error(err)
			}
		})
	}
	serve(t, "unix", filepath.Join(dir, "odd/descriptor.sock"), func(c net.Conn) { io.WriteString(c, "no descriptor") })
	dialled := serve(t, "tcp4", "127.0.0.1:0", func(c net.Conn) { io.WriteString(c, "dialled") })
	names := []string{"orders", "orders", "orders", "2nd-db", "ended", "odd", "none", "", "../orders"}
	want := []string{"inherited<nil>", "fetched<nil>", "fetched<nil>", "fetched<nil>", "dialled<nil>", "dialled<nil>",
		"dialled<nil>", "dialled<nil>", "dialled<nil>"}
	for language, command := range map[string][]string{"Go": {os.Args[0]}, "Python": {"python3", "-c", python}} {
		t.Run(language, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, command[0], append(append(command[1:], dialled.Addr().String()), names...)...)
			cmd.Env = append(os.Environ(), rootVariable+"="+dir, "HEADSTART_DESCRIPTORS=ended:orders", "PYTHONDONTWRITEBYTECODE=1")
			cmd.ExtraFiles = []*os.File{saying(t, ""), saying(t, "inherited")}
			var errors strings.Builder
			cmd.Stderr = &errors
			out, err := cmd.Output()
			for _, f := range cmd.ExtraFiles {
				f.Close()
			}
			var got []string
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("%v: %s%s", err, out, errors.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
