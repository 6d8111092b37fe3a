package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// maxSocketPath is the length of a unix socket's path: sockaddr_un.sun_path on Linux
// holds 108 bytes with the final zero (unix(7)).
const maxSocketPath = 107

// Priorities of a function's endpoints. Envoy sends requests to the first that has
// enough endpoints that are well, so a function is cold or hot by what the first two have.
const (
	priorityReady  = 0
	prioritySpare  = 1 // ready, with a weight of 0: for when the others are gone or ejected
	priorityDaemon = 2
)

// A mesh's clusters choose the transport socket by this metadata of an endpoint: Istio's
// own match tlsMode, and what package istio adds for the daemon, which is always plain.
const transportSocketMatch = "envoy.transport_socket_match"

var (
	overMesh    = socketMatch("tlsMode", "istio")
	alwaysPlain = socketMatch("headstart", "node")
)

func socketMatch(key, value string) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		transportSocketMatch: {Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}},
	}}
}

// hotFunction is where one function is ready, as the gateways get it: each of
// them its own split over the same endpoints. It is never changed, only replaced.
type hotFunction struct {
	name string // platform.Function.AssignmentName
	// cluster is what gateways call the function's cluster, if their route filter may pick its
	// endpoints.
	cluster string
	ready   addresses
	pool    pool
	// endpoints has the LbEndpoint of each of pool's addresses, encoded, and below that of
	// the daemon. A function has up to thousands of endpoints, and each gateway its own
	// weights for them: what is the same for all of them is encoded once.
	endpoints [][]byte
	below     []byte
	// unpicked is why no filter can be told of these endpoints. Empty: it can, if there is a
	// cluster, and anything to pick from.
	unpicked string
	// sums change with all that a content depends on but the node's own numbers.
	sums [contents][sha256.Size]byte
}

// with is the function by a matrix. It takes over what it can of old, which may be nil: all
// of it, if nothing is different.
func (f hotFunction) with(m *routing.Matrix, old *hotFunction) (*hotFunction, error) {
	if old != nil && old.cluster == f.cluster && maps.Equal(old.ready, f.ready) && bytes.Equal(old.below, f.below) {
		if old.pool.matrix == m {
			return old, nil
		}
		f = *old
		f.pool = newPool(old.pool.addresses, m)
		return &f, nil
	}
	f.pool = newPool(slices.SortedFunc(maps.Keys(f.ready), netip.AddrPort.Compare), m)
	for _, a := range f.pool.addresses {
		e := lbEndpoint(socketAddress(a.Addr().String(), uint32(a.Port())))
		if f.ready[a] {
			e.Metadata = overMesh
		}
		b, err := encodeEndpoint(e)
		if err != nil {
			return nil, err
		}
		f.endpoints = append(f.endpoints, b)
	}
	// Samples of the encoding, so that a control plane that encodes the same otherwise
	// does not call it the same version.
	sample := make([]uint32, len(f.endpoints))
	for i := range sample {
		sample[i] = uint32(i)
	}
	f.sums[itsEndpoints] = sha256.Sum256(append(f.encode(nil), f.encode(sample)...))
	expected := make([]filterapi.RouteEndpoint, len(f.pool.addresses))
	for i, a := range f.pool.addresses {
		expected[i] = filterapi.RouteEndpoint{Address: a, Weight: 1,
			Expected: filterapi.Expected{RTT: time.Millisecond, Service: time.Millisecond, Workers: 1, Others: 1}}
	}
	line, err := filterapi.RouteFunction{Cluster: f.cluster, Endpoints: expected}.Line()
	if err != nil {
		f.unpicked = err.Error() + "; weights alone say where requests go"
	}
	f.sums[itsExpectations] = sha256.Sum256(encodeLine(f.name, line))
	return &f, nil
}

// version is the same for the same content, also in another control plane.
func (f *hotFunction) version(weights []uint32) string {
	sum := &f.sums[itsEndpoints]
	b := make([]byte, 0, len(sum)+4*len(weights))
	b = append(b, sum[:]...)
	for _, w := range weights {
		b = protowire.AppendFixed32(b, w)
	}
	return versionOf(b)
}

func versionOf(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:versionBytes])
}

// encode returns the function's ClusterLoadAssignment as a protobuf message, written field
// by field: by way of objects it is eight allocations for each endpoint, gateway and change.
// weights are of pool.split. TestMeshAssignmentsAreStable has Envoy's own types read it.
func (f *hotFunction) encode(weights []uint32) []byte {
	size := len(f.name) + len(f.below) + perLocality*(priorityDaemon+2)
	for _, e := range f.endpoints {
		size += len(e) + perEndpoint
	}
	// cluster_name
	b := protowire.AppendString(protowire.AppendTag(make([]byte, 0, size), 1, protowire.BytesType), f.name)
	b = appendLocality(b, priorityReady, f.endpoints, weights, func(w uint32) bool { return w > 0 })
	if weights != nil {
		b = appendLocality(b, prioritySpare, f.endpoints, weights, func(w uint32) bool { return w == 0 })
	}
	if len(f.below) == 0 {
		return b
	}
	return appendLocality(b, priorityDaemon, [][]byte{f.below}, nil, nil)
}

const (
	// versionBytes tell apart all contents that one function has in a control plane's
	// life.
	versionBytes = 9
	// perLocality and perEndpoint are the most that goes around them.
	perLocality, perEndpoint = 32, 16
)

// appendLocality adds a ClusterLoadAssignment.endpoints of those whose weight is taken, nil
// weights being all the same, unless there are none. It has a weight itself, because
// policies that weigh localities send nothing to one without.
func appendLocality(b []byte, priority uint32, endpoints [][]byte, weights []uint32, taken func(uint32) bool) []byte {
	var count uint32
	size := 0
	for i, e := range endpoints {
		if weights != nil && !taken(weights[i]) {
			continue
		}
		count++
		size += protowire.SizeTag(2) + protowire.SizeBytes(len(e)+weightSize(weights, i))
	}
	if count == 0 {
		return b
	}
	size += valueSize(count)
	if priority > 0 {
		size += protowire.SizeTag(5) + protowire.SizeVarint(uint64(priority))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(size)) // endpoints
	for i, e := range endpoints {
		if weights != nil && !taken(weights[i]) {
			continue
		}
		// lb_endpoints
		b = protowire.AppendVarint(
			protowire.AppendTag(b, 2, protowire.BytesType), uint64(len(e)+weightSize(weights, i)),
		)
		b = append(b, e...)
		if weightSize(weights, i) > 0 {
			b = appendValue(b, 4, weights[i]) // load_balancing_weight
		}
	}
	b = appendValue(b, 3, count) // load_balancing_weight
	if priority > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(priority)) // priority
	}
	return b
}

// weightSize is that of an endpoint's weight, which a spare has none of.
func weightSize(weights []uint32, i int) int {
	if weights == nil || weights[i] == 0 {
		return 0
	}
	return valueSize(weights[i])
}

// valueSize is that of a field with a number below 16 that has a UInt32Value; v is not 0.
func valueSize(v uint32) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(protowire.SizeTag(1)+protowire.SizeVarint(uint64(v)))
}

func appendValue(b []byte, field protowire.Number, v uint32) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeVarint(uint64(v))))
	return protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(v))
}

func encodeEndpoint(e *endpoint.LbEndpoint) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding an endpoint: %w", err)
	}
	return b, nil
}

// addresses says of each address whether it takes requests over mutual TLS.
type addresses map[netip.AddrPort]bool

// hotAddresses returns where functions are ready: in instances of the platform's own, or
// in those that another autoscaler runs.
func hotAddresses(st platform.State) map[string]addresses {
	hot := make(map[string]addresses)
	for e := range st.Hot() {
		if hot[e.Function] == nil {
			hot[e.Function] = addresses{}
		}
		hot[e.Function][e.Address] = hot[e.Function][e.Address] || e.MeshTLS
	}
	return hot
}

func lbEndpoint(a *core.Address) *endpoint.LbEndpoint {
	return &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: a}}}
}

func pipe(path string) *core.Address {
	return &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: path}}}
}

func socketAddress(host string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}}}
}
