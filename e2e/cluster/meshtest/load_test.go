//go:build cluster

package meshtest

import (
	"context"
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// loadRate is for each of the loads, in requests per second.
const loadRate = 10

// under has a load on the service while something is done: through each gateway one of
// requests with an input and one of requests without. None may be lost.
func under(t *testing.T, s service, gateways []pod, do func()) {
	t.Helper()
	running := map[string]*load.Load{}
	for _, g := range gateways {
		for _, input := range []bool{false, true} {
			request := func(ctx context.Context) (*http.Request, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.ip+":8080/", nil)
				if err != nil {
					return nil, err
				}
				r.Host = s.host()
				if input {
					r.Header.Set("x-bucket", testbed.Bucket)
					r.Header.Set("x-key", inputKey)
				}
				return r, nil
			}
			name := g.name
			if input {
				name += ", with an input"
			}
			running[name] = load.Start(t.Context(), load.Config{Request: request, Rate: loadRate, Timeout: requestTimeout})
		}
	}
	do()
	for name, l := range running {
		r := l.Stop()
		t.Logf("%s: %d sent, %d lost, median %v, worst %v", name, r.Sent, r.Lost, r.Quantile(0.5), r.Quantile(1))
		if r.Lost > 0 || r.Sent == 0 {
			t.Errorf("%s: %d of %d are lost: %v", name, r.Lost, r.Sent, r.Reasons)
		}
	}
}
