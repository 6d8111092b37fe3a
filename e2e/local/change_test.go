//go:build integration

package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// A function gets each request once, and each is answered: also while it becomes hot under load,
// and when requests come just as it is taken away.
func TestTheMomentOfChangeLosesNothing(t *testing.T) {
	const name, rounds, clients = "changes-often", 4, 16
	deploy(t, testbed.Function{Name: name, Node: testbed.Cloud, Env: map[string]string{"WITNESS_TELL": "1"},
		Annotations: map[string]string{"headstart.dev/input": "body", "headstart.dev/scale-to-zero": "1s"}})
	run := rand.Text() // the log may have those of an earlier one
	var sent atomic.Int64
	for range rounds {
		var g sync.WaitGroup
		for range clients {
			g.Go(func() { untilHot(t, name, run, &sent) })
		}
		g.Wait()
		eventually(t, "it is taken away", func() error {
			if slices.ContainsFunc(function(t, name).Instances, func(in admin.Instance) bool { return in.Phase == platform.Ready }) {
				return errors.New("it is ready still")
			}
			return nil
		})
	}
	came := map[string]int{}
	eventually(t, "the function's log has all", func() error {
		log, err := os.ReadFile(filepath.Join(bed.StateDir(testbed.Cloud), "logs", "default."+name+".log"))
		if err != nil {
			return err
		}
		clear(came)
		for line := range strings.Lines(string(log)) {
			if number, ok := strings.CutPrefix(line, "request "+run); ok {
				came[strings.TrimSpace(number)]++
			}
		}
		if n := int(sent.Load()); len(came) != n {
			return fmt.Errorf("%d of %d requests", len(came), n)
		}
		return nil
	})
	for number, times := range came {
		if times != 1 {
			t.Errorf("the function got request %s %d times", number, times)
		}
	}
}

// untilHot sends requests, one after the other, until some have gone straight to the instance.
func untilHot(t *testing.T, name, run string, sent *atomic.Int64) {
	const some = 3
	late := time.Now().Add(4 * settleTimeout)
	for straight := 0; straight < some; {
		n := sent.Add(1)
		body := strings.Repeat("x", int(n%3)*100_000)
		a, err := call{function: name, header: map[string]string{"x-number": fmt.Sprint(run, " ", n)}, body: strings.NewReader(body)}.do(t.Context())
		if err != nil || a.status != http.StatusOK || a.report.Body.Bytes != int64(len(body)) {
			t.Errorf("request %d, after %d straight ones: %v, %d: %.300s", n, straight, err, a.status, a.body)
			return
		}
		if a.header.Get(filterapi.HeaderRequest) == "" {
			straight++
		} else if time.Now().After(late) {
			t.Error("it does not become hot")
			return
		}
	}
}
