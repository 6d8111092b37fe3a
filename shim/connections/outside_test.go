package connections

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A workflow's requests go to destinations by their URLs: to those of its namespace whose connections may be the node's, as the
// operator has said what is spoken there, and by kept connections.
func TestWorkflowsReachDestinations(t *testing.T) {
	opened, ended := make(chan bool, 10), make(chan bool, 10)
	serve := func(start func(*httptest.Server)) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto+" "+r.Host+r.URL.Path)
		}))
		s.Config.ConnState = func(_ net.Conn, is http.ConnState) {
			switch is {
			case http.StateNew:
				opened <- true
			case http.StateClosed:
				ended <- true
			}
		}
		s.EnableHTTP2 = true
		start(s)
		t.Cleanup(s.Close)
		return s
	}
	plain, secure := serve((*httptest.Server).Start), serve((*httptest.Server).StartTLS)
	roots := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	at := func(name, kind string, s *httptest.Server, origin string, namespaces ...string) *nodeapi.Destination {
		d := &nodeapi.Destination{Name: name, Kind: kind, Address: s.Listener.Addr().String(), Origin: origin, Namespaces: namespaces}
		if kind == "tls" {
			d.Tls = &nodeapi.DestinationTLS{Roots: roots, ServerName: "example.com"}
		}
		return d
	}
	r := newRig(t, at("inside", "tcp", plain, "sandbox"), at("plain", "tcp", plain, "node", "shop"), at("secure", "tls", secure, "node"),
		&nodeapi.Destination{Name: "cache", Kind: "redis", Address: "127.0.0.1:80", Origin: "node"})
	urlOf := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	onPlain, onSecure := plain.Listener.Addr().String(), secure.Listener.Addr().String()
	for _, c := range []struct{ namespace, url, name string }{
		{"shop", "http://" + onPlain + "/a", "plain"}, {"shop", "https://" + onSecure + "/a", "secure"}, {"bank", "https://" + onSecure, "secure"},
		{"bank", "http://" + onPlain, ""}, {"shop", "https://" + onPlain, ""}, {"shop", "http://" + onSecure, ""}, {"shop", "http://127.0.0.1/", ""},
		{"shop", "http://localhost/", ""},
	} {
		to, name := r.Outside(c.namespace, urlOf(c.url))
		if name != c.name || (to == nil) != (c.name == "") {
			t.Errorf("%s %s: %v, %q", c.namespace, c.url, to, name)
		}
	}
	for u, want := range map[string]string{"http://" + onPlain + "/a": "HTTP/1.1 " + onPlain + "/a", "https://" + onSecure + "/b": "HTTP/2.0 " + onSecure + "/b"} {
		for range 3 {
			if got := r.getOutside(u); got != want {
				t.Errorf("%s: %q, want %q", u, got, want)
			}
		}
	}
	if n := len(opened); n != 2 {
		t.Errorf("%d connections for 6 requests to 2 servers", n)
	}
	r.Set([]*nodeapi.Destination{at("plain", "tcp", plain, "node", "bank")})
	if to, name := r.Outside("shop", urlOf("http://"+onPlain)); to != nil {
		t.Errorf("what the operator has taken away is still %s", name)
	}
	<-ended // those of destinations that are others now
	<-ended
}

// getOutside has the server of a URL say what it is asked.
func (r *rig) getOutside(u string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, u, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	to, _ := r.Outside("shop", req.URL)
	resp, err := to.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return string(b)
}

// What is wrong with a destination, the operator hears, and the workflow's caller no more than that.
func TestADestinationThatWorkflowsDoNotReach(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	address := s.Listener.Addr().String()
	s.Close()
	r := newRig(t, &nodeapi.Destination{Name: "gone", Kind: "tcp", Address: address, Origin: "node"})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	to, _ := r.Outside("shop", req.URL)
	if resp, err := to.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		t.Fatal("a server that is gone has answered")
	}
	m, _ := r.list.look(t.Context(), nil)
	if len(m.GetProblems()) != 1 || !strings.Contains(m.GetProblems()[0].GetMessage(), "refused") {
		t.Errorf("the operator hears %v", m.GetProblems())
	}
}
