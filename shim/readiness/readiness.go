// Package readiness finds out when a program begins to take requests.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
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

// NotReadyError says why a program was not ready before its context ended.
type NotReadyError struct {
	// Because is what the last attempt met, in words for the program's owner.
	Because string
	err     error // the context's
}

func (e *NotReadyError) Error() string { return e.err.Error() + ": " + e.Because }

// Unwrap returns the context's error.
func (e *NotReadyError) Unwrap() error { return e.err }

// statusError is an answer that says that the program is not ready.
type statusError struct {
	path   string
	status int
}

func (e statusError) Error() string { return fmt.Sprintf("GET %s is answered by %d", e.path, e.status) }

// because puts a failed attempt into words. The address is the node's affair, and not in them.
func because(err error, port uint16) string {
	var status statusError
	var slow net.Error
	switch {
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf(
			"nothing listens on port %d; a program that listens on 127.0.0.1 only, or on another port, cannot be reached",
			port,
		)
	case errors.As(err, &slow) && slow.Timeout():
		return fmt.Sprintf("port %d does not answer within %s", port, probeTimeout)
	}
	return fmt.Sprintf("port %d does not answer", port)
}

// Await returns once the program answers: a TCP connection, or HTTP 2xx or 3xx
// on path, as the kubelet counts it. If ctx ends before and there was an attempt, the error is a
// *NotReadyError.
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
			return statusError{path, resp.StatusCode}
		}
		return nil
	}
	var last error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := probeFirst; ; wait = min(wait*5/4, probeLongest) {
		select {
		case <-ctx.Done():
			if last == nil {
				return ctx.Err()
			}
			return &NotReadyError{because(last, addr.Port()), ctx.Err()}
		case <-timer.C:
		}
		err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else it says nothing of the program
			last = err
		}
		timer.Reset(wait)
	}
}
