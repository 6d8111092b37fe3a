//go:build integration

package local

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Nodes know how far they are from each other, and the control plane how busy they are with
// requests that no daemon sees.
func TestNodesKnowHowFarAndHowBusyOthersAre(t *testing.T) {
	deploy(t, testbed.Function{Name: "busy", Node: testbed.Cloud})
	for from, to := range map[string]string{testbed.Edge: testbed.Cloud, testbed.Cloud: testbed.Edge} {
		eventually(t, "the way from "+from, func() error {
			seconds, err := bed.Metric(t.Context(), from, fmt.Sprintf("headstart_probe_round_trip_seconds{node=%q}", to))
			if err != nil {
				return err
			}
			// The machine adds to it, and does not take away.
			if rtt := time.Duration(seconds * float64(time.Second)); rtt < 2*linkDelay || rtt > 3*linkDelay {
				return fmt.Errorf("a round trip of %s over a link of %s one way", rtt, linkDelay)
			}
			return nil
		})
	}
	const callers, takes = 4, 200 * time.Millisecond
	var calling sync.WaitGroup
	defer calling.Wait()
	stop := make(chan struct{})
	defer close(stop)
	var latest [callers]atomic.Int64 // how long each one's last request took
	for i := range callers {
		calling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				a, err := call{function: "busy", path: fmt.Sprintf("/sleep?ms=%d", takes.Milliseconds())}.do(t.Context())
				if err != nil || a.status != http.StatusOK {
					t.Errorf("%v, %v", a.status, err)
					return
				}
				latest[i].Store(int64(time.Since(began)))
			}
		})
	}
	about := func(name string, bounds func(seen float64) (least, most float64)) {
		t.Helper()
		eventually(t, name, func() error {
			got, err := bed.ControlPlaneMetric(t.Context(), fmt.Sprintf("headstart_signal_%s{function=\"default/busy\",node=%q}", name, testbed.Cloud))
			if err != nil {
				return err
			}
			// The machine adds to what the function takes, for callers as well.
			var seen float64
			for i := range latest {
				seen += max(time.Duration(latest[i].Load()), takes).Seconds() / callers
			}
			if least, most := bounds(seen); got < least || got > most {
				return fmt.Errorf("%g, want %g to %g", got, least, most)
			}
			return nil
		})
	}
	least := takes.Seconds()
	about("requests_in_flight", func(seen float64) (float64, float64) { return 0.7 * callers * least / seen, 1.05 * callers })
	about("requests_per_second", func(seen float64) (float64, float64) { return 0.6 * callers / seen, callers / least })
	about("sojourn_seconds", func(seen float64) (float64, float64) { return 0.8 * least, 1.3 * seen })
	about("service_seconds", func(seen float64) (float64, float64) { return 0.7 * least, 1.3 * seen })
	about("trust_ratio", func(float64) (float64, float64) { return 1, 1 })
}
