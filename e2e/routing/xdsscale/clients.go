package xdsscale

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// maxMessage and window are a daemon's own.
	maxMessage = 64 << 20
	window     = 1 << 20
	// dialers connect at the same time: a handshake costs both sides a millisecond, and
	// the whole crowd at once would run into its own timeouts.
	dialers = 32
	// nodeName is a client's, by its number.
	nodeName = "node-%d"
)

// stream is one of the control plane's, open.
type stream interface {
	Send(*discovery.DeltaDiscoveryRequest) error
	Recv() (*discovery.DeltaDiscoveryResponse, error)
}

// streams are those that a node's daemon has open, over one connection.
var streams = [...]struct {
	typeURL string
	open    func(context.Context, grpc.ClientConnInterface, ...grpc.CallOption) (stream, error)
}{
	{resource.EndpointType, func(ctx context.Context, conn grpc.ClientConnInterface, o ...grpc.CallOption) (stream, error) {
		return discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, o...)
	}},
	{resource.ExtensionConfigType, func(ctx context.Context, conn grpc.ClientConnInterface, o ...grpc.CallOption) (stream, error) {
		return extension.NewExtensionConfigDiscoveryServiceClient(conn).DeltaExtensionConfigs(ctx, o...)
	}},
}

// ClientsConfig is what the clients' process is told, as one line of JSON.
type ClientsConfig struct {
	Address       string // of the control plane
	Name          string // in its certificate
	Cert, Key, CA string // PEM files
	Clients       int
}

// arrival is what the clients' process tells of a version, as a line of JSON.
type arrival struct {
	Version uint64 // DeltaDiscoveryResponse.system_version_info
	Clients int    // have it, by all of their streams
	// Last is when the last of them had received the last of it, in nanoseconds since 1970.
	Last int64
	// Bytes is the size of all responses to all clients, as protobuf messages.
	Bytes int
}

// Clients are many nodes' streams, each node's over a connection of its own, in the process
// that it is called in. It reads its ClientsConfig from in, and then the versions that it shall
// tell of, one a line with the number of clients that will hear of it; it tells of each on
// out when they have. It returns when in ends.
func Clients(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	var c ClientsConfig
	if !lines.Scan() {
		return errors.Join(errors.New("no configuration"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	_, client, err := peertls.Load(c.Cert, c.Key, c.CA)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &tally{versions: map[uint64]*arrival{}, wanted: map[uint64]int{}, out: json.NewEncoder(out)}
	g, ctx := errgroup.WithContext(ctx)
	turn := make(chan struct{}, dialers)
	for i := range c.Clients {
		g.Go(func() error {
			if err := follow(ctx, c, peertls.ClientFor(client, c.Name), fmt.Sprintf(nodeName, i), turn, t); err != nil && ctx.Err() == nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
			return nil
		})
	}
	g.Go(func() error {
		defer cancel()
		for lines.Scan() {
			var a arrival
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				return err
			}
			if err := t.want(a.Version, a.Clients); err != nil {
				return err
			}
		}
		return lines.Err()
	})
	return g.Wait()
}

// follow is one client until ctx ends: it takes and acknowledges all that comes.
func follow(ctx context.Context, c ClientsConfig, config *tls.Config, name string, turn chan struct{}, t *tally) error {
	conn, err := grpc.NewClient(c.Address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	leave := sync.OnceFunc(func() { <-turn })
	defer leave()
	n := &node{}
	g, ctx := errgroup.WithContext(ctx)
	for i := range streams {
		g.Go(func() error { return n.follow(ctx, i, conn, name, leave, t) })
	}
	return g.Wait()
}

// node is what a client has.
type node struct {
	versions [len(streams)]uint64 // of a tally's mu: the last that each of its streams told of
}

// follow is one stream until ctx ends.
func (n *node) follow(ctx context.Context, i int, conn grpc.ClientConnInterface, name string, heard func(), t *tally) error {
	str, err := streams[i].open(ctx, conn, grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := str.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: name}, TypeUrl: streams[i].typeURL, ResourceNamesSubscribe: []string{"*"}}); err != nil {
		return err
	}
	for {
		r, err := str.Recv()
		if err != nil {
			return err
		}
		heard()
		now := time.Now()
		bytes := 0
		for _, res := range r.GetResources() {
			bytes += len(res.GetResource().GetValue()) + len(res.GetName()) + len(res.GetVersion())
		}
		version, err := strconv.ParseUint(r.GetSystemVersionInfo(), 10, 64)
		if err != nil {
			return err
		}
		if err := str.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
			return err
		}
		if err := t.arrived(n, i, version, now, bytes); err != nil {
			return err
		}
	}
}

// tally counts who has what.
type tally struct {
	mu       sync.Mutex
	versions map[uint64]*arrival
	wanted   map[uint64]int
	out      *json.Encoder
}

// arrived is called when stream i of n has told of a version.
func (t *tally) arrived(n *node, i int, version uint64, at time.Time, bytes int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of(version)
	a.Last, a.Bytes = max(a.Last, at.UnixNano()), a.Bytes+bytes
	n.versions[i] = version
	if slices.Min(n.versions[:]) < version {
		return nil // another one of its streams is still to tell
	}
	a.Clients++
	return t.tell(version)
}

func (t *tally) want(version uint64, clients int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(version)
	t.wanted[version] = clients
	return t.tell(version)
}

func (t *tally) of(version uint64) *arrival {
	if t.versions[version] == nil {
		t.versions[version] = &arrival{Version: version}
	}
	return t.versions[version]
}

// tell writes what is complete; t.mu is held.
func (t *tally) tell(version uint64) error {
	if wanted, asked := t.wanted[version]; !asked || t.versions[version].Clients < wanted {
		return nil
	}
	defer delete(t.wanted, version)
	return t.out.Encode(t.versions[version])
}
