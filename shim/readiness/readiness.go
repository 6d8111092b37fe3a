// Package readiness finds out when a program begins to take requests.
package readiness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// A probe is cheap (one connection on the node's own bridge), and every millisecond
// between ready and noticed is added to a cold start. So it starts dense and thins
// out for programs that take long.
const (
	probeFirst   = 2 * time.Millisecond
	probeLongest = 50 * time.Millisecond
	// probeTimeout bounds one attempt: a program may accept and then hang.
	probeTimeout = time.Second
)

// Await returns once the program answers: a TCP connection, or HTTP 2xx or 3xx
// on path, as the kubelet counts it.
func Await(ctx context.Context, addr netip.AddrPort, path string) error {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: probeTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	attempt := func() error {
		if path == "" {
			d := net.Dialer{Timeout: probeTimeout}
			c, err := d.DialContext(ctx, "tcp", addr.String())
			if err != nil {
				return err
			}
			return c.Close()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode < 200 || resp.StatusCode >= 400 {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := probeFirst; ; wait = min(wait*5/4, probeLongest) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if attempt() == nil {
			return nil
		}
		timer.Reset(wait)
	}
}
