package stores

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// nameServer has all names resolve to these addresses, for the whole process.
func nameServer(t *testing.T, addresses ...string) {
	t.Helper()
	was := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = was })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerName(server, addresses) == nil {
			}
		}()
		return client, nil
	}}
}

// answerName answers one question, as over TCP (RFC 1035, section 4.2.2).
func answerName(c net.Conn, addresses []string) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	asked := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, asked); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(asked); err != nil {
		return err
	}
	m.Response, m.Additionals = true, nil
	header := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}
	for _, text := range addresses {
		switch a := netip.MustParseAddr(text); {
		case a.Is4() && m.Questions[0].Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && m.Questions[0].Type == dnsmessage.TypeAAAA:
			body := &dnsmessage.AAAAResource{AAAA: a.As16()}
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	said, err := m.AppendPack(size[:])
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(said, uint16(len(said)-len(size)))
	_, err = c.Write(said)
	return err
}

// inside is a server of the node itself that no function may read: it has what everybody gets who
// reaches it. asked counts the connections to it.
func inside(t *testing.T) (port string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, "the node's credentials")
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			asked.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, asked
}

// stranger are stores whose names belong to somebody else, or whose name server does.
func stranger(port string) []*nodeapi.Store {
	return []*nodeapi.Store{
		{Name: "web", Kind: "http", Buckets: []string{"models.example.com:" + port}, PublicAddresses: true},
		{Name: "open", Kind: "http", Buckets: []string{"files.example.com:" + port}},
		edge("http://s3.example.com:" + port),
		{Name: "jobs", Kind: "redis", Endpoint: "redis.example.com:" + port, Buckets: []string{"jobs"}},
	}
}

var strangers = map[string]string{ // a store's reference, without its port
	"web":  "http://models.example.com:PORT/latest/credentials",
	"open": "http://files.example.com:PORT/latest/credentials",
	"edge": "s3://videos/latest/credentials", "jobs": "redis://jobs/latest",
}

func writeSecret(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "edge"), []byte(accessKey), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fetchFrom reads what a store has.
func fetchFrom(t *testing.T, s *Stores, store, ref string) (string, error) {
	t.Helper()
	from, err := s.Source("default/fire", store)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := source.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	sink := &sourcetest.Sink{}
	err = from.Fetch(t.Context(), parsed, "", sink.Begin)
	return string(sink.Content), err
}

// A host's name server says that the host is the node itself, or the cloud's instance metadata: a store
// by a name gets none of their answers, whatever its kind, and neither does the consumer of a stream.
func TestAttackStoresNameResolvesToTheNodeOrItsMetadata(t *testing.T) {
	for what, addresses := range map[string][]string{
		"the node":        {"127.0.0.1"},
		"the node by v6":  {"::1", "::ffff:127.0.0.1"},
		"any of it":       {"0.0.0.0"},
		"metadata":        {"169.254.169.254", "fd00:ec2::254", "100.100.100.200"},
		"both, in a mix":  {"169.254.169.254", "127.0.0.1"},
		"by a translator": {"64:ff9b::7f00:1"},
	} {
		t.Run(what, func(t *testing.T) {
			nameServer(t, addresses...)
			port, asked := inside(t)
			s, secrets := newStores(t)
			writeSecret(t, secrets)
			s.Set(stranger(port))
			for store, ref := range strangers {
				got, err := fetchFrom(t, s, store, strings.ReplaceAll(ref, "PORT", port))
				p := problem.Of(err)
				says := func(a string) bool { return strings.Contains(p.Detail, strings.TrimPrefix(a, "::ffff:")) }
				if p.Title != "StoreAddressRefused" || got != "" || !slices.ContainsFunc(addresses, says) {
					t.Errorf("%s: %q, %v", store, got, err)
				}
			}
			stream, err := s.client("default/fire", "jobs", source.Reference{Scheme: source.SchemeRedis, Bucket: "jobs", Key: "frames"})
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Ping(t.Context()).Err(); problem.Of(err).Title != "StoreAddressRefused" {
				t.Errorf("a stream: %v", err)
			}
			if n := asked.Load(); n > 0 {
				t.Errorf("the node was asked %d times", n)
			}
		})
	}
}

// A public host whose name server says a private address leads to nothing in the operator's network,
// unless the operator says that the host is there. The operator's own S3 and Redis are there.
func TestAttackStoresNameResolvesToAPrivateAddress(t *testing.T) {
	nameServer(t, "10.255.255.1")
	s, _ := newStores(t)
	s.Set(stranger("9"))
	_, err := fetchFrom(t, s, "web", strings.ReplaceAll(strangers["web"], "PORT", "9"))
	p := problem.Of(err)
	if p.Title != "StoreAddressRefused" || !strings.Contains(p.Detail, "10.255.255.1") ||
		!strings.Contains(p.Detail, "http.privateAddresses") {
		t.Errorf("got %v", err)
	}
}

// Hosts that the operator has written as addresses, or as localhost, are meant.
func TestWrittenAddressesAreMeant(t *testing.T) {
	port, _ := inside(t)
	s, _ := newStores(t)
	hosts := []string{"127.0.0.1:" + port, "localhost:" + port}
	s.Set([]*nodeapi.Store{{Name: "own", Kind: "http", Buckets: hosts, PublicAddresses: true}})
	for _, host := range hosts {
		if got, err := fetchFrom(t, s, "own", "http://"+host+"/a"); err != nil || got != "the node's credentials" {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
}
