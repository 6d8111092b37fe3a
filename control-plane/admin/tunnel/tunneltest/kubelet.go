// Package tunneltest forwards ports as a kubelet does, for tests of those who ask for it.
package tunneltest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Kubelet forwards ports to addresses of this machine, whatever pod is asked for. It
// serves API servers, and clients that think it is one.
type Kubelet struct {
	// Ports are host:port by the pod's port.
	Ports map[string]string

	mu    sync.Mutex
	asked []string
	wg    sync.WaitGroup
}

// Asked returns methods and paths of all requests.
func (k *Kubelet) Asked() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked)
}

// Wait returns when all forwarding has ended; callers close their connections before.
func (k *Kubelet) Wait() { k.wg.Wait() }

// ServeHTTP forwards one port, over SPDY.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.asked = append(k.asked, r.Method+" "+r.URL.Path)
	k.mu.Unlock()
	k.wg.Add(1)
	defer k.wg.Done()
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return // it has answered
	}
	streams := make(chan httpstream.Stream, 2)
	c := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if c == nil {
		return
	}
	defer c.Close()
	var failure, data httpstream.Stream
	for failure == nil || data == nil {
		select {
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failure = s
			} else {
				data = s
			}
		case <-c.CloseChan():
			return
		}
	}
	if err := k.forward(data); err != nil {
		fmt.Fprint(failure, err)
	}
	_, _ = failure.Close(), data.Close() // the other side may be gone
	<-c.CloseChan()
}

// forward carries bytes until either side ends.
func (k *Kubelet) forward(data httpstream.Stream) error {
	port := data.Headers().Get(corev1.PortHeader)
	to, ok := k.Ports[port]
	if !ok {
		return errors.New("dial tcp4 127.0.0.1:" + port + ": connect: connection refused")
	}
	c, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(c, data)
		_ = c.Close()
	})
	_, _ = io.Copy(data, c)
	_ = data.Reset()
	wg.Wait()
	return nil
}
