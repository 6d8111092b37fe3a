package filterapi

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Limits of configurations. Each Envoy worker keeps its own copy.
const (
	// MaxConfigBytes fits MaxFunctions of a usual size and stays far below what an xDS
	// message may hold.
	MaxConfigBytes = 4 << 20
	// MaxFunctions is the number of functions behind one gateway.
	MaxFunctions = 10_000
	// MaxFunctionBytes fits a function with reference.MaxNamed inputs, each byte of whose templates JSON
	// escapes.
	MaxFunctionBytes = 128 << 10
	// maxClusterNameBytes is far above any name that the control plane gives a cluster.
	maxClusterNameBytes = 255
	// maxEndpointBytes is the length of a unix socket's path: sockaddr_un.sun_path on
	// Linux holds 108 bytes with the final zero (unix(7)).
	maxEndpointBytes = 107
	// maxHostBytes and maxLabelBytes bound a name in the DNS (RFC 1035, section 2.3.4).
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// ParseConfig reads and validates a plugin configuration. Unknown fields of a known
// version are ignored, so that a newer control plane can talk to the filter of before: what
// a filter must obey or refuse comes with a new Version. An older control plane names functions here.
func ParseConfig(data []byte) (*Config, error) {
	r := reader{}
	root, err := parse(data, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	c := &Config{Version: r.text(root, "version")}
	// The version comes first, so that a newer configuration is refused as newer and
	// not for a field that it has gained.
	if err := cmp.Or(r.err, checkVersion(c.Version)); err != nil {
		return nil, err
	}
	c.HintCluster, c.IngressEndpoint = r.text(root, "hintCluster"), r.text(root, "ingressEndpoint")
	if err := cmp.Or(r.err, c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// ParseFunction reads and validates a function. Unknown fields are ignored.
func ParseFunction(data []byte) (*Function, error) {
	r := reader{}
	root, err := parse(data, MaxFunctionBytes)
	if err != nil {
		return nil, err
	}
	f := &Function{Name: r.text(root, "name"), Input: r.text(root, "input"), Inputs: r.texts(root, "inputs"),
		Observed: r.texts(root, "observed")}
	if err := cmp.Or(r.err, f.Validate()); err != nil {
		return nil, err
	}
	return f, nil
}

func parse(data []byte, most int) (*fastjson.Value, error) {
	if len(data) > most {
		return nil, fmt.Errorf("is %d bytes long, at most %d are allowed", len(data), most)
	}
	root, err := fastjson.ParseBytes(data)
	if err != nil {
		return nil, errors.New("is not one value of JSON")
	}
	return root, nil
}

// reader reads fields, which may be absent, and keeps the first that is of a wrong type.
type reader struct{ err error }

func (r *reader) text(of *fastjson.Value, field string) string { return r.string(of.Get(field), field) }

func (r *reader) string(v *fastjson.Value, field string) string {
	if absent(v) {
		return ""
	}
	b, err := v.StringBytes()
	if err != nil {
		r.wrong(field, "a string")
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// texts are the members of an object; nil: there are none.
func (r *reader) texts(of *fastjson.Value, field string) map[string]string {
	v := of.Get(field)
	if absent(v) {
		return nil
	}
	object, err := v.Object()
	if err != nil {
		r.wrong(field, "an object")
		return nil
	}
	var texts map[string]string
	object.Visit(func(name []byte, member *fastjson.Value) {
		if texts == nil {
			texts = make(map[string]string, object.Len())
		}
		texts[string(name)] = r.string(member, field)
	})
	return texts
}

func absent(v *fastjson.Value) bool { return v == nil || v.Type() == fastjson.TypeNull }

func (r *reader) wrong(field, must string) {
	if r.err == nil {
		r.err = errors.New(field + ": must be " + must)
	}
}

// Validate returns the first thing wrong, beginning with the field's name.
func (c *Config) Validate() error {
	if err := checkVersion(c.Version); err != nil {
		return err
	}
	if c.HintCluster == "" || len(c.HintCluster) > maxClusterNameBytes {
		return fmt.Errorf("hintCluster: must be 1 to %d bytes long", maxClusterNameBytes)
	}
	if c.IngressEndpoint != "" && !isSocketPath(c.IngressEndpoint) {
		return fmt.Errorf("ingressEndpoint: must be the absolute path of a unix socket, of at most %d letters, digits, and -._/", maxEndpointBytes)
	}
	return nil
}

func checkVersion(v string) error {
	if v != Version {
		return fmt.Errorf("version: is %.64q, this filter takes %q", v, Version)
	}
	return nil
}

// Validate returns the first thing wrong, beginning with the field's name.
func (f *Function) Validate() error {
	namespace, name, ok := strings.Cut(f.Name, "/")
	if !ok || !isLabel(namespace) || !isLabel(name) {
		return fmt.Errorf("name: %.200q is not namespace/name", f.Name)
	}
	if f.IsObserved() && (f.Input != "" || len(f.Inputs) > 0) {
		return errors.New("observed: a function has either these templates or those of input and inputs")
	}
	_, err := reference.ParseTemplates(f.Templates())
	return err
}

// isSocketPath takes paths that can also be a header's value, in which a comma would
// begin another endpoint.
func isSocketPath(s string) bool {
	if len(s) > maxEndpointBytes || !strings.HasPrefix(s, "/") {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._/") == ""
}

// IsHost tells whether s is an authority that a function may have: lower case, no port.
func IsHost(s string) bool {
	if len(s) > maxHostBytes {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabel says whether s is a lower-case label of RFC 1123, section 2.1.
func isLabel(s string) bool {
	if s == "" || len(s) > maxLabelBytes || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
