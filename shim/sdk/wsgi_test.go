package sdk

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

// patient is many times what anything here takes.
const patient = 30 * time.Second

const application = `
import os, signal, subprocess, sys, tempfile, time
import headstart_wsgi

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/hang":
        child = subprocess.Popen(["sleep", "1000"])
        with tempfile.NamedTemporaryFile(delete=False) as f:
            print("hangs", os.getpid(), child.pid, f.name, flush=True)
        time.sleep(1000)
    if path == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    if path == "/raise":
        raise ValueError("no")
    if path == "/slow":
        time.sleep(0.2)
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/large":
        return [b"x" * 100000 for _ in range(30)]
    return [environ["REQUEST_METHOD"].encode(), b" ", environ["QUERY_STRING"].encode(), b" ", body, b" ", tempfile.gettempdir().encode()]

def nowhere(**_):
    raise FileNotFoundError("No usable temporary directory found")

if os.environ.get("NOWHERE"):
    tempfile.mkdtemp = nowhere
headstart_wsgi.serve(app)
`

// startWSGI starts the application, and returns its address and what it prints.
func startWSGI(t *testing.T, env ...string) (address string, says *bufio.Reader) {
	t.Helper()
	address = porttest.Address(t)
	_, port, _ := strings.Cut(address, ":")
	cmd := exec.Command("python3", "-c", application)
	cmd.Env = append(os.Environ(), "PORT="+port, "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ends with %v: %s", err, words.String())
		}
	})
	for late := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address, bufio.NewReader(out)
		}
		if time.Now().After(late) {
			t.Fatalf("it does not listen: %s", words.String())
		}
	}
}

func ask(address, path, body string) (int, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patient}
	resp, err := client.Post("http://"+address+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Each request has a process and a directory for itself, and requests at the same time do not wait for each other.
func TestWSGI(t *testing.T) {
	address, _ := startWSGI(t)
	dirs := map[string]bool{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for i := range 20 {
		asking.Go(func() {
			status, said, err := ask(address, fmt.Sprintf("/slow?n=%d", i), fmt.Sprintf("body %d", i))
			want, dir, _ := strings.Cut(said, " /")
			if err != nil || status != 200 || want != fmt.Sprintf("POST n=%d body %d", i, i) {
				t.Errorf("%d %q, %v", status, said, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if dirs[dir] {
				t.Errorf("two requests have %s", dir)
			}
			dirs[dir] = true
		})
	}
	asking.Wait()
	for dir := range dirs {
		if _, err := os.Stat("/" + dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	for path, want := range map[string]int{"/large": 200, "/die": 500, "/raise": 500} {
		if status, said, err := ask(address, path, ""); err != nil || status != want || path == "/large" && len(said) != 3_000_000 {
			t.Errorf("%s: %d, %d bytes, %v", path, status, len(said), err)
		}
	}
}

// An image may have nowhere to write: then requests have no directory.
func TestWSGIWithNowhereToWrite(t *testing.T) {
	address, _ := startWSGI(t, "NOWHERE=1")
	for range 2 {
		if status, said, err := ask(address, "/once?n=1", "body"); err != nil || status != 200 || !strings.HasPrefix(said, "POST n=1 body ") {
			t.Errorf("%d %q, %v", status, said, err)
		}
	}
}

// When the client closes its half of the connection, nothing of the request is left, and it is answered.
func TestWSGIGivesUp(t *testing.T) {
	address, says := startWSGI(t)
	for range 3 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /hang HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		line, err := says.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var pid, child int
		var file string
		if _, err := fmt.Sscanf(line, "hangs %d %d %s", &pid, &child, &file); err != nil {
			t.Fatal(line, err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
			t.Fatalf("%v, %v", resp, err)
		}
		_ = resp.Body.Close()
		if err := syscall.Kill(pid, 0); err == nil {
			t.Error("its process is left")
		}
		for late := time.Now().Add(patient); syscall.Kill(child, 0) == nil && time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child)); strings.Contains(string(b), ") Z ") {
				break // nobody reaps it here
			}
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is left", file)
		}
		if status, _, err := ask(address, "/", ""); err != nil || status != 200 {
			t.Errorf("the next request: %d, %v", status, err)
		}
	}
}
