//go:build integration

package xds

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// A function that becomes hot and cold again and again loses no request: an
// instance may be stopped when the requests are answered that began before the gateways
// had settled.
func TestSwitchUnderLoad(t *testing.T) {
	const clients, switches = 8, 40
	f := thumbs()
	cold := platform.State{Functions: []platform.Function{f, video()}}
	b := start(t, cold, nil)
	b.listen("unix", b.gw.IngressSocket, "cold")
	if got := b.get(f.Hosts[0]); got.body != "cold" {
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
				got, err := b.try(f.Hosts[0], "")
				asked[c].Add(1)
				if err != nil || got.status != http.StatusOK {
					t.Errorf("request got %+v, error %v", got, err)
				}
			}
		})
	}
	for i := 0; i < switches && !t.Failed(); i++ {
		hot := b.listen("tcp", "127.0.0.1:0", "hot")
		began := time.Now()
		b.update(platform.State{Functions: cold.Functions, Instances: []platform.Instance{ready(f, "one", hot.address)}})
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
	t.Logf("from Update: %v to the first hot request, %v until settled (means of %d)", toHot/switches, settled/switches, switches)
}
