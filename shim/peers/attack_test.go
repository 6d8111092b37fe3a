package peers_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/peers"
)

// stranger is a node that somebody has taken over: it asks what it likes.
func (s *site) stranger(t *testing.T, name string) *http.Client {
	t.Helper()
	_, conf := s.ca.Load(t, name, net.IPv4(127, 0, 0, 1))
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c := peertls.ClientFor(conf, "127.0.0.1")
		c.NextProtos = []string{peers.Protocol}
		return (&tls.Dialer{Config: c}).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask returns the answer's status, what the problem is called, and the bytes.
func (s *site) ask(t *testing.T, c *http.Client, of *node, token string, query url.Values) (status int, title string, body []byte) {
	t.Helper()
	return s.askAt(t, c, of, "/object", token, query)
}

func (s *site) askAt(t *testing.T, c *http.Client, of *node, path, token string, query url.Values) (
	status int, title string, body []byte,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address(of)+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ = io.ReadAll(res.Body) // as much as comes
	return failureIn(body)
}

// failureIn is what an answer's first frame says, if that is a problem.
func failureIn(body []byte) (status int, title string, all []byte) {
	var said struct {
		Status int
		Title  string
	}
	if len(body) > 5 && body[0] == 'f' {
		_ = json.Unmarshal(body[5:], &said)
	}
	return said.Status, said.Title, body
}

// The attacker is a node that runs functions of one namespace. It asks for what another namespace's functions have,
// with all that it can get hold of.
func TestAttackANodeAsksForAnotherNamespacesObjects(t *testing.T) {
	s := newSite(t, 1000, 3)
	s.by(0).check(t)
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	const evil = "node-66"
	c := s.stranger(t, evil)
	sign := func(k ed25519.PrivateKey, node, ns string, life time.Duration) string {
		return capability.Sign(k, capability.Pass{Node: node, Namespace: ns}, time.Now().Add(life))
	}
	for name, token := range map[string]string{
		"without a pass":                 "",
		"with nonsense":                  "nonsense",
		"with its own namespace's pass":  sign(s.key, evil, "bank", capability.PassLife),
		"with another node's pass":       sign(s.key, s.by(0).name, namespace, capability.PassLife),
		"with a pass of its own making":  sign(other, evil, namespace, capability.PassLife),
		"with a pass of yesterday":       sign(s.key, evil, namespace, -24*time.Hour),
		"with a pass for ever":           sign(s.key, evil, namespace, 24*time.Hour),
		"with the capability of request": capability.Sign(s.key, capability.Binding{Request: evil, Function: namespace}, time.Now()),
	} {
		for _, q := range []url.Values{
			{"namespace": {namespace}, "store": {storeName}, "reference": {reference}},
			{"namespace": {namespace}, "store": {storeName}, "reference": {reference}, "version": {"v1"}, "only": {"true"}},
		} {
			status, title, body := s.ask(t, c, s.by(0), token, q)
			if status != http.StatusForbidden || title != "PeerNotAllowed" || bytes.Contains(body, []byte(reference)) {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
	}
	if n := s.origin.count(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
	// What it may have: its own namespace's. Names of other namespaces and stores that are not granted lead nowhere.
	mine := sign(s.key, evil, "bank", capability.PassLife)
	if status, title, _ := s.ask(t, c, s.by(0), mine, url.Values{"namespace": {"bank"}, "store": {storeName},
		"reference": {reference}, "version": {"v1"}, "only": {"true"}}); title != "PeerHasNone" && title != "PeerMembersDiffer" {
		t.Errorf("another namespace's version is served: %d %s", status, title)
	}
	foreign := sign(s.key, evil, "foreign", capability.PassLife)
	if status, title, _ := s.ask(t, c, s.by(0), foreign, url.Values{"namespace": {"foreign"}, "store": {storeName},
		"reference": {reference}}); status != http.StatusForbidden || title != "StoreNotAllowed" {
		t.Errorf("a store that is not granted: %d %s", status, title)
	}
}

// Without the control plane's keys a node serves nobody.
func TestWithoutKeysNothingIsServed(t *testing.T) {
	s := newSite(t, 1000, 3)
	s.by(0).check(t)
	s.by(0).peers.Trust(nil)
	status, _, _ := s.ask(t, s.stranger(t, s.by(1).name), s.by(0), s.pass(s.by(1).name, namespace),
		url.Values{"namespace": {namespace}, "store": {storeName}, "reference": {reference}})
	if status != http.StatusForbidden {
		t.Errorf("status %d", status)
	}
}

// The attacker is a node that asks for more than it needs at a time. It is refused, and others are served.
func TestAttackANodeAsksTooMuch(t *testing.T) {
	s := newSite(t, 2*digest.Block, 3)
	s.origin.step = make(chan struct{})
	defer close(s.origin.step)
	const evil = "node-66"
	q := url.Values{"namespace": {namespace}, "store": {storeName}, "reference": {reference}}
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan struct{}, 1)
	var all errgroup.Group
	for range 2 { // connections: each may have 64 questions under way
		c := s.stranger(t, evil)
		for range 64 {
			all.Go(func() error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address(s.by(0))+"/object?"+q.Encode(), nil)
				if err != nil {
					return err
				}
				req.Header.Set("Authorization", "Bearer "+s.pass(evil, namespace))
				res, err := c.Do(req)
				if err != nil {
					return nil // it is over
				}
				defer res.Body.Close()
				body, _ := io.ReadAll(res.Body) // until it is over
				if _, title, _ := failureIn(body); title == "PeerBusy" {
					select {
					case refused <- struct{}{}:
					default:
					}
				}
				return nil
			})
		}
	}
	<-refused
	if _, err := s.by(2).begin(t, ""); err != nil {
		t.Error(err)
	}
	cancel()
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

func (s *site) address(of *node) string {
	for _, m := range s.members {
		if m.GetNode() == of.name {
			return m.GetPeerAddress()
		}
	}
	return ""
}
