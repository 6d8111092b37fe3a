package xds

import (
	"iter"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// content is one of the things that a node is told of each function, by a stream of its own:
// a daemon that is older or newer than its control plane goes without the other one.
type content int

const (
	// itsEndpoints are where requests go: a ClusterLoadAssignment, by ADS.
	itsEndpoints content = iota
	// itsExpectations are what the gateways' route filter reckons with: its line, as a
	// StringValue in a TypedExtensionConfig, by ECDS. They are apart from the endpoints because
	// they change more often, and Envoy builds a cluster anew for each change of these.
	itsExpectations
	contents
)

func (c content) String() string { return [...]string{"endpoints", "expectations"}[c] }

func (c content) typeURL() string {
	return [...]string{resource.EndpointType, resource.ExtensionConfigType}[c]
}

// split is what a node has of a function; version is empty if that is nothing.
func (f *hotFunction) split(c content, node string) split {
	if c == itsExpectations {
		expected, why := f.expect(node)
		if expected == nil {
			return split{why: why}
		}
		return split{version: f.lineVersion(expected)}
	}
	weights, why := f.pool.split(node)
	return split{version: f.version(weights), why: why}
}

// resource is that, encoded.
func (f *hotFunction) resource(c content, node string) []byte {
	if c == itsExpectations {
		expected, _ := f.expect(node)
		endpoints := slices.AppendSeq(make([]filterapi.RouteEndpoint, 0, len(f.pool.addresses)), expected)
		// a sample of it was refused, if any would be
		line, _ := filterapi.RouteFunction{Cluster: f.cluster, Endpoints: endpoints}.Line()
		return encodeLine(f.name, line)
	}
	weights, _ := f.pool.split(node)
	return f.encode(weights)
}

// expect is what the route filter of the node's gateways is told of each endpoint; nil: nothing.
// why says what could not be used.
func (f *hotFunction) expect(node string) (expected iter.Seq[filterapi.RouteEndpoint], why string) {
	if f.cluster == "" {
		return nil, ""
	}
	weights, _ := f.pool.split(node)
	expected, why = f.pool.expect(node, weights)
	if expected != nil && f.unpicked != "" {
		return nil, f.unpicked
	}
	return expected, why
}

// lineVersion is that of the line with these numbers. An Update asks for every node's, one after
// the other; the text would take it several times as long, and those make it who send it.
func (f *hotFunction) lineVersion(expected iter.Seq[filterapi.RouteEndpoint]) string {
	sum := &f.sums[itsExpectations]
	b := make([]byte, 0, len(sum)+usualNumbers*len(f.pool.addresses))
	b = append(b, sum[:]...)
	for e := range expected {
		for _, n := range e.Numbers() {
			b = protowire.AppendVarint(b, n)
		}
	}
	return versionOf(b)
}

// usualNumbers is how many bytes an endpoint's numbers take at most, unless they are absurd.
const usualNumbers = 16

const stringValueType = "type.googleapis.com/google.protobuf.StringValue"

// encodeLine is a TypedExtensionConfig, field by field as encode of assignments is.
func encodeLine(name, line string) []byte {
	value := protowire.SizeTag(1) + protowire.SizeBytes(len(line))
	packed := protowire.SizeTag(1) + protowire.SizeBytes(len(stringValueType)) + protowire.SizeTag(2) + protowire.SizeBytes(value)
	b := make(
		[]byte, 0, protowire.SizeTag(1)+protowire.SizeBytes(len(name))+protowire.SizeTag(2)+protowire.SizeBytes(packed),
	)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(packed))  // typed_config
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), stringValueType) // type_url
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(value))
	return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), line)
}
