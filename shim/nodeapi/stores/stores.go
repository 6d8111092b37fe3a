// Package stores reads the operator's allow-list: the stores, and the buckets in them, that
// functions may read their inputs from. Keyspaces of Redis and hosts are buckets, too. The list
// names secrets and never holds one.
package stores

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// maxFile bounds the allow-list file, in bytes. 100 stores with 1000 buckets each would be
// 7 MB; an operator with more than 1 MiB of bucket names has another problem.
const maxFile = 1 << 20

// DefaultRegion signs the requests to stores that know no regions, which take any.
const DefaultRegion = "us-east-1"

// How functions write into a bucket: a write is acknowledged when the store has it, or when the node has it.
const (
	WriteThrough = "through"
	WriteBack    = "back"
)

// Writes are all of them.
var Writes = []string{WriteThrough, WriteBack}

// Where the credentials of an S3 store come from that has no secret: the AWS SDK finds them for the node's daemon, or there are none.
const (
	CredentialsWorkload  = "workload"
	CredentialsAnonymous = "anonymous"
)

// Credentials are all of them.
var Credentials = []string{CredentialsWorkload, CredentialsAnonymous}

// Store is one store that the operator allows.
type Store struct {
	Name string
	// Kind is one of the kinds.
	Kind string
	// Endpoint is an http or https URL of scheme, host and port only, and with Redis a
	// host:port. Kind http has none.
	Endpoint string
	// Region and PathStyle are S3's. The region is empty with other kinds, by which nodes
	// that know S3 only refuse them; PathStyle puts the bucket into the path instead of the
	// host name.
	Region    string
	PathStyle bool
	// TLS and Database are Redis'.
	TLS      bool
	Database int
	// Public: hosts that are names must not resolve to private addresses. Only kind http has it.
	Public bool
	// Buckets are what functions may read: buckets, keyspaces of Redis, or hosts.
	Buckets []string
	// Shared are those of them in which namespaces share fetches.
	Shared []string
	// Fresh is how long the answers of buckets hold; 0: the store is asked for each request.
	Fresh map[string]time.Duration
	// Write says of buckets of S3 how functions may write into them; those that are not there they only read.
	Write map[string]string
	// Secret is the name of the secret that holds the credentials; empty: none are needed.
	Secret string
	// Credentials says where those of S3 come from without a secret.
	Credentials string
	// Namespaces are those whose functions may use the store; empty: all.
	Namespaces []string
}

// Allows reports whether functions may read from the bucket.
func (s Store) Allows(bucket string) bool { return slices.Contains(s.Buckets, bucket) }

// Schemes returns those of the references that the store takes. Credentials are sent to
// hosts by https only.
func (s Store) Schemes() []string {
	switch {
	case s.Kind != KindHTTP:
		return []string{s.Kind}
	case s.Secret != "":
		return []string{reference.HTTPS}
	}
	return []string{reference.HTTPS, reference.HTTP}
}

// Message returns the store as nodes are told of it.
func (s Store) Message() *nodeapi.Store {
	var fresh map[string]*durationpb.Duration
	for bucket, holds := range s.Fresh {
		if fresh == nil {
			fresh = map[string]*durationpb.Duration{}
		}
		fresh[bucket] = durationpb.New(holds)
	}
	return &nodeapi.Store{Name: s.Name, Kind: s.Kind, Endpoint: s.Endpoint, Region: s.Region, PathStyle: s.PathStyle,
		Tls: s.TLS, Database: int32(s.Database), PublicAddresses: s.Public, Buckets: s.Buckets, Shared: s.Shared, Secret: s.Secret, Credentials: s.Credentials,
		Namespaces: s.Namespaces, Fresh: fresh, Write: s.Write}
}

// Grants reports whether the functions of the namespace may use the store.
func (s Store) Grants(namespace string) bool {
	return len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace)
}

// Stores is the allow-list, in the file's order.
type Stores []Store

// Get returns the store of that name.
func (ss Stores) Get(name string) (Store, bool) {
	i := slices.IndexFunc(ss, func(s Store) bool { return s.Name == name })
	if i < 0 {
		return Store{}, false
	}
	return ss[i], true
}

// Messages returns all of them as nodes are told of them.
func (ss Stores) Messages() []*nodeapi.Store {
	all := make([]*nodeapi.Store, len(ss))
	for i, s := range ss {
		all[i] = s.Message()
	}
	return all
}

// Names returns the names of the stores, in the file's order.
func (ss Stores) Names() []string {
	names := make([]string, len(ss))
	for i, s := range ss {
		names[i] = s.Name
	}
	return names
}

// For returns the stores that functions of the namespace may use.
func (ss Stores) For(namespace string) Stores {
	var granted Stores
	for _, s := range ss {
		if s.Grants(namespace) {
			granted = append(granted, s)
		}
	}
	return granted
}

// Load reads the allow-list from a file.
func Load(path string) (Stores, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the list of stores: %w", err)
	}
	defer f.Close()
	// One byte more than allowed, so that Parse sees the excess.
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the list of stores: %w", err)
	}
	ss, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("list of stores %s: %w", path, err)
	}
	return ss, nil
}

// Parse reads the allow-list. It reports all problems together, as field.Errors, unless
// the text is no such YAML at all. An empty list is valid: no function has an input then.
func Parse(data []byte) (Stores, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes; list fewer buckets", maxFile)
	}
	var entries []entry
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, fmt.Errorf("not a list of stores: %w", err)
	}
	ss := make(Stores, len(entries))
	for i, e := range entries {
		ss[i] = e.store()
	}
	if err := validate(entries).Err(); err != nil {
		return nil, err
	}
	return ss, nil
}
