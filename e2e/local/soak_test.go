//go:build integration

package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// soakSeed makes the same requests each time.
	soakSeed = 20260101
	// soakRequests are under way soakWorkers at a time.
	soakRequests, soakWorkers = 80, 8
	// soakDeath is every how many requests a daemon is killed.
	soakDeath = 40
)

// What e2e/soak does to daemons is done here, a little of it, to whole nodes with real
// sandboxes: requests are answered right or fail clearly, and afterwards nothing is mounted.
func TestFaultsLeaveNoMounts(t *testing.T) {
	before := mounts(t)
	objects := make([]string, 4)
	for i := range objects {
		objects[i] = put(t, fmt.Sprintf("soak/%d", i), 1+i*1_500_000)
	}
	names := []string{"soak-edge", "soak-cloud", "soak-body"}
	remove := func() {}
	for i, f := range []testbed.Function{{Annotations: withInput(), Node: testbed.Edge}, {Annotations: withInput(), Node: testbed.Cloud},
		{Annotations: map[string]string{"headstart.dev/input": "body"}}} {
		f.Name, f.Image = names[i], testbed.Witness
		f.Annotations["headstart.dev/scale-to-zero"] = "1s"
		if err := bed.Apply(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		last := remove
		remove = func() {
			last()
			if err := bed.Client().Delete(context.Background(), "default/"+f.Name); err != nil {
				t.Error(err)
			}
		}
	}
	var working sync.WaitGroup
	var broken, deaths atomic.Int32
	numbers := make(chan int)
	for range soakWorkers {
		working.Go(func() {
			for n := range numbers {
				if n%soakDeath == soakDeath/2 {
					deaths.Add(1)
					killDaemon(t, []string{testbed.Edge, testbed.Cloud}[n/soakDeath%2])
				}
				r := rand.New(rand.NewPCG(soakSeed, uint64(n)))
				switch err := soakOne(r, names[r.IntN(len(names))], objects); {
				case errors.Is(err, io.ErrUnexpectedEOF):
					t.Logf("request %d: %v", n, err)
					broken.Add(1)
				case err != nil:
					t.Errorf("request %d: %v", n, err)
				}
			}
		})
	}
	for n := range soakRequests {
		numbers <- n
	}
	close(numbers)
	working.Wait()
	if broken.Load() > deaths.Load() { // an answer that a daemon was passing on when it died
		t.Errorf("%d answers broke off, and %d daemons died", broken.Load(), deaths.Load())
	}
	remove()
	nothingHalfMade(t)
	eventually(t, "mounts", func() error {
		if now := mounts(t); now > before {
			return fmt.Errorf("%d are left, and %d were there before", now, before)
		}
		return nil
	})
}

// soakOne sends one request, and says what is wrong with its answer.
func soakOne(r *rand.Rand, name string, objects []string) error {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	c := call{function: name, path: []string{"/", "/", "/", "/sleep?ms=300", "/exit?code=3"}[r.IntN(5)]}
	var want string
	if name == "soak-body" {
		body := make([]byte, r.IntN(2_000_000))
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		want = fmt.Sprintf("%x", sha256.Sum256(body))
		c.body = bytes.NewReader(body)
		if r.IntN(4) == 0 { // in the middle of what it sends
			c.body = io.MultiReader(bytes.NewReader(body[:len(body)/2]), leaves{leave})
		}
	} else {
		object := r.IntN(len(objects))
		want, c.header = objects[object], forInput(fmt.Sprintf("soak/%d", object))
		if r.IntN(8) == 0 {
			want, c.header = "", forInput("soak/missing")
		}
	}
	a, err := c.do(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // nobody saw what became of it
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case a.status == http.StatusOK && want != "" && a.report.Body.SHA256 == want:
		return nil
	case a.status != http.StatusOK && a.problem.Title != "" && a.problem.Detail != "":
		return nil
	}
	return fmt.Errorf("%d %.300s", a.status, a.body)
}

// leaves is the end of a body whose sender leaves.
type leaves struct{ leave func() }

func (l leaves) Read([]byte) (int, error) {
	l.leave()
	return 0, errors.New("the client leaves")
}

// killDaemon has a node's daemon die, and waits until another one runs.
func killDaemon(t *testing.T, node string) {
	t.Helper()
	pid := bed.PID("headstart-node-" + node)
	if pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("the daemon of %s cannot be killed", node)
		return
	}
	err := testbed.Poll(context.WithoutCancel(t.Context()), settleTimeout, func(context.Context) error {
		if now := bed.PID("headstart-node-" + node); now == 0 || now == pid {
			return fmt.Errorf("no other daemon runs on %s", node)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// joined is an error while the control plane does not have a node. One that it has takes requests.
func joined(ctx context.Context, node string) error {
	s, err := bed.Client().Status(ctx)
	if err == nil && !slices.ContainsFunc(s.Nodes, func(n admin.Node) bool { return n.Name == node }) {
		err = fmt.Errorf("the control plane does not have node %s", node)
	}
	return err
}

// mounts counts what is mounted for the bed, as this process and as the nodes see it.
func mounts(t *testing.T) int {
	t.Helper()
	seen := map[string]bool{}
	for _, process := range []string{"self", fmt.Sprint(bed.PID("containerd-" + testbed.Edge)), fmt.Sprint(bed.PID("containerd-" + testbed.Cloud))} {
		all, err := os.ReadFile("/proc/" + process + "/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(all)) {
			if fields := strings.Fields(line); len(fields) > 4 && (strings.HasPrefix(fields[4], bed.RunDir()) || strings.HasPrefix(fields[4], bed.StateDir(""))) {
				seen[fields[4]] = true
			}
		}
	}
	return len(seen)
}
