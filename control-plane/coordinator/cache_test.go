package coordinator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// cacheNode is the stream of a node that answers calls, or does not.
type cacheNode struct {
	grpc.ServerStream
	ctx    context.Context
	said   chan *nodeapi.NodeMessage
	answer func(*nodeapi.CacheCall) *nodeapi.CacheAnswer
}

func (n *cacheNode) Context() context.Context { return n.ctx }

func (n *cacheNode) Recv() (*nodeapi.NodeMessage, error) {
	select {
	case m := <-n.said:
		return m, nil
	case <-n.ctx.Done():
		return nil, n.ctx.Err()
	}
}

func (n *cacheNode) Send(m *nodeapi.ControlMessage) error {
	if call := m.GetCacheCall(); call != nil {
		if a := n.answer(call); a != nil {
			a.Id = call.GetId()
			n.said <- &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_CacheAnswer{CacheAnswer: a}}
		}
	}
	return nil
}

const volumesManifest = `
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: chat
spec:
  template:
    metadata:
      annotations:
        headstart.dev/store: videos
        headstart.dev/volumes: words=s3://videos/words/,sounds=s3://videos/sounds/
    spec:
      containers:
      - image: example.com/chat:1
`

// The nodes do what the operator asks for. One that does not answer keeps nobody from the others' answers.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := assemble(t, t.TempDir())
		if _, err := c.Apply(strings.NewReader(fireManifest + "---" + volumesManifest)); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		answers := map[string]func(*nodeapi.CacheCall) *nodeapi.CacheAnswer{
			"edge": func(call *nodeapi.CacheCall) *nodeapi.CacheAnswer {
				return &nodeapi.CacheAnswer{Entries: []*nodeapi.CacheEntry{{Namespace: call.GetNamespace(), Store: call.GetStore(), Reference: call.GetReference()}}}
			},
			"busy": func(*nodeapi.CacheCall) *nodeapi.CacheAnswer {
				return &nodeapi.CacheAnswer{Refused: &nodeapi.Refused{Status: 429, Reason: "CacheBusy"}}
			},
			"hangs": func(*nodeapi.CacheCall) *nodeapi.CacheAnswer { return nil },
		}
		for name, answer := range answers {
			state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
			n := &cacheNode{ctx: peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}}),
				said: make(chan *nodeapi.NodeMessage, 8), answer: answer}
			n.said <- &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: &nodeapi.Register{CacheCalls: true, PeerAddress: "192.0.2.1:7000"}}}
			go func() { _ = c.Nodes.Connect(n) }()
		}
		synctest.Wait()
		all, err := c.Cache(t.Context(), admin.CacheQuery{Verb: "list"})
		if err != nil || len(all) != 3 || all[0].Node != "busy" || !strings.Contains(all[0].Problem, "CacheBusy") ||
			len(all[1].Entries) != 1 || all[1].Problem != "" || all[2].Problem == "" {
			t.Errorf("%+v, %v", all, err)
		}
		for _, tt := range []struct {
			query  admin.CacheQuery
			reason string
			want   []*nodeapi.CacheEntry
		}{
			{admin.CacheQuery{Verb: "list", Node: "nowhere"}, "NodeUnknown", nil},
			{admin.CacheQuery{Verb: "unspecified"}, "QueryMalformed", nil},
			{admin.CacheQuery{Verb: "format"}, "QueryMalformed", nil},
			{admin.CacheQuery{Verb: "warm", Reference: "s3://videos/a"}, "QueryMalformed", nil},
			{admin.CacheQuery{Verb: "warm", Namespace: "media"}, "QueryMalformed", nil},
			{admin.CacheQuery{Verb: "warm", Function: "default/none"}, "FunctionUnknown", nil},
			{admin.CacheQuery{Verb: "warm", Function: "default/fire"}, "VolumesNone", nil},
			{admin.CacheQuery{Verb: "warm", Node: "edge", Namespace: "media", Reference: "s3://videos/a"}, "", []*nodeapi.CacheEntry{{Namespace: "media", Store: "default", Reference: "s3://videos/a"}}},
			{admin.CacheQuery{Verb: "warm", Node: "edge", Function: "default/chat"}, "", []*nodeapi.CacheEntry{
				{Namespace: "default", Store: "videos", Reference: "s3://videos/words/"}, {Namespace: "default", Store: "videos", Reference: "s3://videos/sounds/"}}},
			{admin.CacheQuery{Verb: "drop", Node: "edge", Namespace: "media", Store: "s"}, "", []*nodeapi.CacheEntry{{Namespace: "media", Store: "s"}}},
		} {
			all, err := c.Cache(t.Context(), tt.query)
			if r, is := errors.AsType[*platform.Refusal](err); tt.reason != "" && (!is || r.Reason != tt.reason) {
				t.Errorf("%+v: %v", tt.query, err)
			}
			if tt.reason == "" && (err != nil || len(all) != 1 || !slices.EqualFunc(all[0].Entries, tt.want, func(a, b *nodeapi.CacheEntry) bool { return proto.Equal(a, b) })) {
				t.Errorf("%+v: %+v, %v", tt.query, all, err)
			}
		}
		end()
		c.Nodes.Wait()
	})
}
