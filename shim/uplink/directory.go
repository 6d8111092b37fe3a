package uplink

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// gRPC's own back-off goes up to two minutes; parked requests do not wait that long
	// for a control plane that is back. The uplink paces its attempts itself.
	redialFirst, redialLongest = 50 * time.Millisecond, time.Second
	// redialTimeout is for a TLS handshake over a slow edge link.
	redialTimeout = 5 * time.Second
	// streamWindow is fixed, as gRPC would measure the way by a ping for each message
	// otherwise. It has the endpoints of a large cluster come in some tens of round trips.
	streamWindow = 1 << 20
	// streamKeepalive finds a control plane that went without a word.
	streamKeepalive = 10 * time.Second
	// resolveTimeout bounds one question to DNS.
	resolveTimeout = 5 * time.Second
)

// Names are the control planes that are known by name (Directory): each address of a name is one,
// such as the pods behind a headless Service.
type Names struct {
	names       []string // host:port
	whichever   string
	resolve     func(ctx context.Context, network, host string) ([]netip.Addr, error)
	credentials credentials.TransportCredentials
}

// NewNames takes the names as host:port, several with commas between. whichever leads to any of the
// control planes; it may be empty.
func NewNames(names, whichever string, c credentials.TransportCredentials) *Names {
	return &Names{
		names: strings.Split(names, ","), whichever: whichever, resolve: net.DefaultResolver.LookupNetIP,
		credentials: c,
	}
}

// Addresses implements Directory. A name without any address does not hide the others'.
func (c *Names) Addresses(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var all []string
	var failed error
	for _, name := range c.names {
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			return nil, err
		}
		found, err := c.resolve(ctx, "ip", host)
		if err != nil {
			failed = fmt.Errorf("resolving %s: %w", host, err)
		}
		for _, a := range found {
			if at := net.JoinHostPort(a.Unmap().String(), port); !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	if len(all) == 0 {
		return nil, failed
	}
	return all, nil
}

// Any implements Directory.
func (c *Names) Any() string { return c.whichever }

// Dial implements Directory.
func (c *Names) Dial(address string) (Conn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithNoProxy(), grpc.WithTransportCredentials(c.credentials),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(streamWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: streamKeepalive, Timeout: streamKeepalive}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: redialTimeout,
			Backoff: backoff.Config{BaseDelay: redialFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialLongest}}))
	if err != nil {
		return nil, fmt.Errorf("connecting to the control plane: %w", err)
	}
	return conn, nil
}
