package xds

import (
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
func (f *meshFunction) split(c content, node string) split {
	if c == itsExpectations {
		line, why := f.line(node)
		if line == "" {
			return split{why: why}
		}
		return split{version: versionOf([]byte(line)), why: why}
	}
	weights, why := f.pool.split(node)
	return split{version: f.version(weights), why: why}
}

// resource is that, encoded.
func (f *meshFunction) resource(c content, node string) []byte {
	if c == itsExpectations {
		line, _ := f.line(node)
		return encodeLine(f.name, line)
	}
	weights, _ := f.pool.split(node)
	return f.encode(weights)
}

// line is what the route filter of the node's gateways is told; empty: nothing. why says what
// could not be used.
func (f *meshFunction) line(node string) (line, why string) {
	if f.cluster == "" {
		return "", ""
	}
	weights, _ := f.pool.split(node)
	expected, why := f.pool.expect(node, weights)
	if expected == nil {
		return "", why
	}
	line, err := filterapi.RouteFunction{Cluster: f.cluster, Endpoints: expected}.Line()
	if err != nil {
		return "", err.Error() + "; weights alone say where requests go"
	}
	return line, why
}

const stringValueType = "type.googleapis.com/google.protobuf.StringValue"

// encodeLine is a TypedExtensionConfig, field by field as encode of assignments is.
func encodeLine(name, line string) []byte {
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), line)
	packed := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), stringValueType) // type_url
	packed = protowire.AppendBytes(protowire.AppendTag(packed, 2, protowire.BytesType), value)
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), packed) // typed_config
}
