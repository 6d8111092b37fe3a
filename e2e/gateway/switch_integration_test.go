//go:build integration

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// bodies are what clients send by turns: nothing, what a gateway keeps for a retry, and more.
var bodies = []string{"", strings.Repeat("x", retryBuffer/2), strings.Repeat("x", 2*retryBuffer)}

// arrivals counts how often each request came, to whomever.
type arrivals struct {
	mu sync.Mutex
	of map[string]int
}

// answer says how many bytes came with the request, whose number is in its header.
func (a *arrivals) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.of[r.Header.Get("X-Number")]++
	a.mu.Unlock()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprint(w, n) // or its client has gone
}

// times is how often a request came; all is how many came.
func (a *arrivals) times(number string) (times, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[number], len(a.of)
}

// A function that becomes hot and cold again and again loses no request, and gets none twice:
// an instance may be stopped when the requests are answered that began before the gateways
// had settled.
func TestSwitchUnderLoad(t *testing.T) {
	const clients, switches = 8, 40
	f := thumbs()
	cold := platform.State{Functions: []platform.Function{f, video()}}
	b := start(t, cold, nil)
	came := &arrivals{of: map[string]int{}}
	parked := b.handle("unix", b.gw.IngressSocket, came.answer)
	if got := b.get(f.Hosts[0], "X-Number", "first"); got.body != "0" {
		t.Fatalf("a cold function's request got %+v, want the daemon's answer", got)
	}

	var (
		wg             sync.WaitGroup
		done           atomic.Bool
		asked          [clients]atomic.Int64
		toHot, settled time.Duration
	)
	for c := range clients {
		wg.Go(func() {
			for !done.Load() {
				n := int(asked[c].Load())
				body := bodies[n%len(bodies)]
				got, err := b.try(f.Hosts[0], body, "X-Number", fmt.Sprint(c, "/", n))
				asked[c].Add(1)
				if err != nil || got.status != http.StatusOK || got.body != fmt.Sprint(len(body)) {
					t.Errorf("request got %+v, error %v", got, err)
				}
			}
		})
	}
	for i := 0; i < switches && !t.Failed(); i++ {
		hot := b.handle("tcp", "127.0.0.1:0", came.answer)
		began := time.Now()
		b.update(platform.State{
			Functions: cold.Functions, Instances: []platform.Instance{ready(f, "one", hot.address)},
		})
		b.eventually("requests reach the instance", func() bool { n, _ := hot.requests(); return n > 0 })
		toHot += time.Since(began)
		began = time.Now()
		b.update(cold)
		b.settle()
		settled += time.Since(began)
		// Each client ends the request that it began before: nobody else has the instance.
		var before [clients]int64
		for c := range asked {
			before[c] = asked[c].Load()
		}
		b.eventually("earlier requests end", func() bool {
			for c := range asked {
				if asked[c].Load() == before[c] {
					return false
				}
			}
			return true
		})
		hot.stop()
	}
	done.Store(true)
	wg.Wait()
	sent := 1
	for c := range asked {
		for n := range asked[c].Load() {
			if times, _ := came.times(fmt.Sprint(c, "/", n)); times != 1 {
				t.Errorf("request %d/%d came %d times", c, n, times)
			}
			sent++
		}
	}
	times, all := came.times("first")
	if n, _ := parked.requests(); times != 1 || all != sent || n == 1 || n == sent {
		t.Errorf("%d requests came of %d, %d of them to the daemon", all, sent, n)
	}
	t.Logf(
		"from Update: %v to the first hot request, %v until settled (means of %d)", toHot/switches, settled/switches,
		switches,
	)
}
