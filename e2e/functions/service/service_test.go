package service_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunRefusesEnvironment(t *testing.T) {
	for name, value := range map[string]string{"PORT": "http", "STARTUP": "soon"} {
		t.Run(name, func(t *testing.T) {
			err := service.Run(t.Context(), func(n string) string {
				if n == name {
					return value
				}
				return ""
			}, "STARTUP", nil)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v does not name %s", err, name)
			}
		})
	}
}

// SIGTERM ends ctx: the request in flight is still answered, then Serve returns.
func TestServeAnswersWhatItAccepted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	accepted := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- service.Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(accepted)
			<-ctx.Done()
			w.WriteHeader(http.StatusTeapot)
		}))
	}()
	go func() {
		<-accepted
		stop()
	}()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}
