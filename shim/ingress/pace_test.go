package ingress_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// inSockets is more than the sockets of one machine, and who reads them, hold of a body.
const inSockets = 2 << 20

// A body that goes on to another node is taken from its client little faster than that gets it;
// one whose way on has ended is taken for the next node as it comes.
func TestABodyIsTakenAsFastAsItGoesOn(t *testing.T) {
	content := make([]byte, inputLimit)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content)
	asked, again := make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	times := 0
	r := newNode(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		defer req.Body.Close()
		if times++; times == 1 {
			close(asked)
			eventually(t, "as much is sent as may be", func() bool { return sent.Load() >= proxy.AheadMost })
			for got := int64(0); got < proxy.AheadMost; {
				n, err := req.Body.Read(make([]byte, 64<<10))
				if err != nil {
					t.Error(err)
					break
				}
				got += int64(n)
				if ahead := sent.Load() - got; ahead > proxy.AheadMost+inSockets {
					t.Errorf("%d bytes are ahead", ahead)
				}
			}
			_ = req.Body.Close()
			eventually(t, "the rest comes when nobody is sent it", func() bool { return sent.Load() == inputLimit })
			close(again)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("nobody is there")}
		}
		got, err := io.ReadAll(req.Body)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("the next node gets %d bytes: %v", len(got), err)
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("done"))}, nil
	}))
	r.gateway = unixClient(t, serveUnix(t, r.Gateway()))
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"}, nil
	}
	body := io.MultiReader(after(func() { <-asked }), io.TeeReader(bytes.NewReader(content), counter{&sent}))
	resp := r.do(t, request(t, "POST", withBody, newID(), "", body))
	if got := read(t, resp.Body); got != "done" {
		t.Errorf("it is answered %d: %s", resp.StatusCode, got)
	}
	<-again
}

// counter counts what is written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
