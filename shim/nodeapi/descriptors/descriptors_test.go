package descriptors_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := descriptors.Path(filepath.Join(dir, "node.sock"))
	if want := filepath.Join(dir, "descriptors.sock"); path != want {
		t.Fatalf("the socket is %s, want %s", path, want)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l, path
}

// serve serves shims until stop is called.
func serve(t *testing.T, take func(string) ([]*os.File, error)) (socket string, stop func()) {
	t.Helper()
	l, path := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- descriptors.Serve(ctx, take, slog.New(slog.DiscardHandler))(l) }()
	return path, func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// files are open files with their names as content.
func files(t *testing.T, names ...string) (all []*os.File) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// open is how many descriptors the process has.
func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A shim gets what its container has, in that order, and the daemon keeps no copy.
func TestFetch(t *testing.T) {
	mine := files(t, "db", "cache")
	socket, stop := serve(t, func(container string) ([]*os.File, error) {
		if container != "ours" {
			return nil, errors.New("unknown")
		}
		return mine, nil
	})
	defer stop()
	got, err := descriptors.Fetch(t.Context(), socket, "ours", 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"db", "cache"} {
		content, err := io.ReadAll(got[i])
		if err != nil || string(content) != want {
			t.Errorf("descriptor %d holds %q, %v", i, content, err)
		}
		flags, err := unix.FcntlInt(got[i].Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("another process would inherit descriptor %d: %v", i, err)
		}
	}
	descriptors.CloseAll(got)
}

// All or nothing: whatever is wrong, no descriptor is left.
func TestFetchOfWhatIsNotThere(t *testing.T) {
	l, _ := listen(t)
	l.Close() // Go has its own descriptors by now
	for name, c := range map[string]struct {
		take  func(t *testing.T) ([]*os.File, error)
		wants int
	}{
		"unknown":                  {take: func(*testing.T) ([]*os.File, error) { return nil, errors.New("unknown") }, wants: 1},
		"none":                     {take: func(*testing.T) ([]*os.File, error) { return nil, nil }, wants: 1},
		"fewer":                    {take: func(t *testing.T) ([]*os.File, error) { return files(t, "a"), nil }, wants: 2},
		"more":                     {take: func(t *testing.T) ([]*os.File, error) { return files(t, "a", "b"), nil }, wants: 1},
		"too many":                 {take: func(t *testing.T) ([]*os.File, error) { return files(t, many()...), nil }, wants: 17},
		"device":                   {take: opened(os.DevNull), wants: 1},
		"a way out of the sandbox": {take: opened("/"), wants: 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := open(t)
			socket, stop := serve(t, func(string) ([]*os.File, error) { return c.take(t) })
			got, err := descriptors.Fetch(t.Context(), socket, "ours", c.wants)
			if err == nil || got != nil {
				t.Errorf("got %v, %v", got, err)
			}
			stop()
			if after := open(t); after > before {
				t.Errorf("%d descriptors are open, %d were", after, before)
			}
		})
	}
}

func opened(path string) func(*testing.T) ([]*os.File, error) {
	return func(*testing.T) ([]*os.File, error) {
		f, err := os.Open(path)
		return []*os.File{f}, err
	}
}

func many() []string { return strings.Split(strings.Repeat("a ", descriptors.Limit)+"a", " ") }

// What answers may be no daemon.
func TestFetchFromOthers(t *testing.T) {
	first, _ := listen(t)
	first.Close() // Go has its own descriptors by now
	for name, say := range map[string]func(*testing.T, *net.UnixConn){
		"nothing":             func(*testing.T, *net.UnixConn) {},
		"a number alone":      func(_ *testing.T, c *net.UnixConn) { _, _ = c.Write([]byte{1}) },
		"words":               func(_ *testing.T, c *net.UnixConn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
		"another number":      func(t *testing.T, c *net.UnixConn) { send(t, c, []byte{2}, 1) },
		"more than is said":   func(t *testing.T, c *net.UnixConn) { send(t, c, []byte{1}, 2) },
		"more than there may": func(t *testing.T, c *net.UnixConn) { send(t, c, []byte{1}, descriptors.Limit+3) },
		"words with files":    func(t *testing.T, c *net.UnixConn) { send(t, c, []byte("\x01\x01"), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l, socket := listen(t)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = io.Copy(io.Discard, c) // the question
				say(t, c.(*net.UnixConn))
			}()
			before := open(t)
			got, err := descriptors.Fetch(t.Context(), socket, "ours", 1)
			<-answered
			if err == nil || got != nil {
				t.Errorf("got %v, %v", got, err)
			}
			if after := open(t); after > before {
				t.Errorf("%d descriptors are open, %d were", after, before)
			}
			l.Close()
		})
	}
}

func send(t *testing.T, c *net.UnixConn, said []byte, n int) {
	file := files(t, "a")[0]
	defer file.Close()
	fds := make([]int, n)
	for i := range fds {
		fds[i] = int(file.Fd())
	}
	if _, _, err := c.WriteMsgUnix(said, unix.UnixRights(fds...), nil); err != nil {
		t.Error(err)
	}
}

// A daemon that says nothing is not waited for when nobody waits for the answer.
func TestFetchEndsWithItsCaller(t *testing.T) {
	l, socket := listen(t)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.Copy(io.Discard, c) // the question
		cancel()
		_, _ = c.Read(make([]byte, 1)) // until the shim goes: it writes nothing more
	}()
	if _, err := descriptors.Fetch(ctx, socket, "ours", 1); err == nil {
		t.Error("got descriptors of nobody")
	}
	if _, err := descriptors.Fetch(t.Context(), filepath.Join(t.TempDir(), "s"), "ours", 1); err == nil {
		t.Error("got descriptors of nobody")
	}
}
