//go:build integration

package local

import (
	"fmt"
	"net/http"
	"sync"
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
	for range callers {
		calling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := call{function: "busy", path: fmt.Sprintf("/sleep?ms=%d", takes.Milliseconds())}.do(t.Context())
				if err != nil || a.status != http.StatusOK {
					t.Errorf("%v, %v", a.status, err)
					return
				}
			}
		})
	}
	about := func(name string, least, most float64) {
		t.Helper()
		eventually(t, name, func() error {
			got, err := bed.ControlPlaneMetric(t.Context(), fmt.Sprintf("headstart_signal_%s{function=\"default/busy\",node=%q}", name, testbed.Cloud))
			if err == nil && (got < least || got > most) {
				err = fmt.Errorf("%g, want %g to %g", got, least, most)
			}
			return err
		})
	}
	about("requests_in_flight", callers*0.7, callers*1.05)
	about("requests_per_second", 0.6*callers/takes.Seconds(), callers/takes.Seconds())
	about("sojourn_seconds", 0.8*takes.Seconds(), 1.3*takes.Seconds())
	about("service_seconds", 0.7*takes.Seconds(), 1.3*takes.Seconds())
	about("trust_ratio", 1, 1)
}
