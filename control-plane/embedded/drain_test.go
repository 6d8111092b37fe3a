package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A gateway is drained when it has answered its requests, and is not waited for longer than the
// time that there is, nor if it does not answer itself.
func TestDrainGateway(t *testing.T) {
	for name, in := range map[string]struct {
		requests []int // what the gateway has, each time that it is asked; the last stays
		want     error
	}{
		"none":         {[]int{0}, nil},
		"they end":     {[]int{2, 1, 0}, nil},
		"one does not": {[]int{2, 1}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			var asked []string
			socket := filepath.Join(t.TempDir(), adminSocket)
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			envoy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, r.Method+" "+r.URL.Path)
				if len(in.requests) == 1 && in.want != nil { // it does not change any more
					cancel()
				}
				if r.URL.Path == "/stats" {
					fmt.Fprintf(w, "http.gateway.downstream_rq_active: %d\n", in.requests[0])
					in.requests = in.requests[min(1, len(in.requests)-1):]
				}
			})}
			served := make(chan error, 1)
			go func() { served <- envoy.Serve(listener) }()
			if err := drainGateway(ctx, socket); !errors.Is(err, in.want) {
				t.Errorf("%v, want %v", err, in.want)
			}
			if err := envoy.Close(); err != nil {
				t.Error(err)
			}
			<-served
			mu.Lock()
			defer mu.Unlock()
			if len(asked) < 3 || !slices.Equal(asked[:3], []string{"POST /healthcheck/fail", "POST /drain_listeners", "GET /stats"}) {
				t.Errorf("the gateway was asked %q", asked)
			}
		})
	}
	if err := drainGateway(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "draining the gateway") {
		t.Errorf("of a gateway that is away: %v", err)
	}
}
