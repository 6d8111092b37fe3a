// Package tunnel reaches a port of a pod's own loopback through the Kubernetes API
// server, as kubectl port-forward does, but without a listener on this machine that its
// other users could connect to.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	httpspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// errorMost bounds what the kubelet may say about a failure, in bytes.
	errorMost = 4 << 10
	// errorWait is how long the kubelet's reason may come after the end of the data.
	errorWait = time.Second
)

// Dial connects to the port on 127.0.0.1 of the pod. It needs the right to create
// pods/portforward. config is not changed.
func Dial(ctx context.Context, config *rest.Config, namespace, pod string, port int) (net.Conn, error) {
	to, err := address(config, namespace, pod)
	if err != nil {
		return nil, err
	}
	streams, err := overWebSocket(ctx, config, to)
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(err, &upgrade) {
		err = upgrade.Cause
	}
	// API servers before 1.31 and some proxies know one of the two only; and this one
	// needs the right to create, the other one may need that to get, too.
	if upgrade != nil || httpstream.IsHTTPSProxyError(err) {
		var again error
		if streams, again = overSPDY(ctx, config, to); again == nil || !refused(err) {
			err = again
		}
	}
	if err != nil {
		return nil, fmt.Errorf("forwarding a port of pod %s/%s: %w", namespace, pod, err)
	}
	c, err := open(streams, port)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forwarding port %d of pod %s/%s: %w", port, namespace, pod, err), streams.Close())
	}
	return c, nil
}

// refused says that the API server has understood the request, and will not do it. Over
// SPDY it does not say so in a way that callers could tell.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// address is the URL of the pod's port forwarding.
func address(config *rest.Config, namespace, pod string) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the address of the API server: %w", err)
	}
	return base.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward"), nil
}

func overWebSocket(ctx context.Context, config *rest.Config, to *url.URL) (httpstream.Connection, error) {
	transport, holder, err := websocket.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	c, err := websocket.Negotiate(transport, holder, req, constants.WebsocketsSPDYTunnelingPortForwardV1)
	if err != nil {
		return nil, err
	}
	return httpspdy.NewClientConnectionWithPings(portforward.NewTunnelingConnection("headstart", c), portforward.PingPeriod)
}

func overSPDY(ctx context.Context, config *rest.Config, to *url.URL) (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, err
	}
	c, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, req, constants.PortForwardV1Name)
	return c, err
}

// conn is one forwarded connection, which has its stream connection for itself.
type conn struct {
	httpstream.Stream
	streams httpstream.Connection
	// failed holds what the kubelet said went wrong, and is closed when it says no more.
	failed chan error
	once   sync.Once
	read   bool
}

func open(streams httpstream.Connection, port int) (*conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := streams.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	if err := failures.Close(); err != nil { // we say nothing on it
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := streams.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	c := &conn{Stream: data, streams: streams, failed: make(chan error, 1)}
	// It ends with the connection, at the latest by Close.
	go func() {
		defer close(c.failed)
		text, _ := io.ReadAll(io.LimitReader(failures, errorMost)) // the connection's end is no news
		if len(text) > 0 {
			c.failed <- errors.New(strings.TrimSpace(string(text)))
		}
	}()
	return c, nil
}

// Read returns the kubelet's reason for a connection that never was, where it has one.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 {
		c.read = true
	}
	if err != nil && !c.read {
		late := time.NewTimer(errorWait)
		defer late.Stop()
		select {
		case reason := <-c.failed:
			if reason != nil {
				return n, reason
			}
		case <-late.C:
		}
	}
	return n, err
}

// Close ends the forwarding, and waits for it.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		err = c.streams.Close()
		for range c.failed {
		}
	})
	return err
}

// The addresses and deadlines of a net.Conn mean nothing here: whoever calls by HTTP
// closes the connection when time is up.

func (c *conn) LocalAddr() net.Addr              { return forwarded{} }
func (c *conn) RemoteAddr() net.Addr             { return forwarded{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

type forwarded struct{}

func (forwarded) Network() string { return "portforward" }
func (forwarded) String() string  { return "pod" }
