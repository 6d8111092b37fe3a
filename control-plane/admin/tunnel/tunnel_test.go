package tunnel_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel"
	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel/tunneltest"
)

func TestMain(m *testing.M) {
	// A connection that the other side has closed first stays for a second, then goes by
	// itself.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// admin is what listens in the pod.
func admin(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "status of "+r.Host)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// apiServer answers at the path of port forwarding as h does. The test ends when all
// forwarding has.
func apiServer(t *testing.T, k *tunneltest.Kubelet, h http.Handler) *rest.Config {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(func() {
		s.Close()
		k.Wait()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// get asks what listens at the pod's port.
func get(t *testing.T, config *rest.Config, port int) (string, error) {
	t.Helper()
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return tunnel.Dial(ctx, config, "headstart-system", "headstart-controlplane-0", port)
		}}}
	resp, err := c.Get("http://headstart/v1/status")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestThroughAnAPIServerThatKnowsSPDYOnly(t *testing.T) {
	k := &tunneltest.Kubelet{Ports: map[string]string{"9466": admin(t)}}
	config := apiServer(t, k, k)
	for range 2 {
		if text, err := get(t, config, 9466); err != nil || text != "status of headstart" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	const path = "/api/v1/namespaces/headstart-system/pods/headstart-controlplane-0/portforward"
	if asked := k.Asked(); asked[0] != "GET "+path || asked[1] != "POST "+path {
		t.Errorf("asked for %q", asked)
	}
}

// What the kubelet says went wrong is what the user gets to know.
func TestNobodyListens(t *testing.T) {
	k := &tunneltest.Kubelet{}
	_, err := get(t, apiServer(t, k, k), 9466)
	if err == nil || !strings.Contains(err.Error(), "dial tcp4 127.0.0.1:9466: connect: connection refused") {
		t.Error(err)
	}
}

func TestTheAPIServerRefuses(t *testing.T) {
	k := &tunneltest.Kubelet{}
	config := apiServer(t, k, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"you may not","reason":"Forbidden","code":403}`)
	}))
	_, err := get(t, config, 9466)
	if err == nil || !strings.Contains(err.Error(), "forwarding a port of pod headstart-system/headstart-controlplane-0") || !strings.Contains(err.Error(), "you may not") {
		t.Error(err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("it tells the token: %v", err)
	}
}

func TestNobodyIsThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, &rest.Config{Host: "http://" + l.Addr().String()}, 9466); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}
