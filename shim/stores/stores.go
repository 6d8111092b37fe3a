// Package stores are the stores that the operator allows: where inputs come from, and the streams that
// functions are called for. The list is a file on the node, or comes from the control plane. The stores'
// credentials never pass the control plane: they lie in files on the node.
package stores

import (
	"context"
	"errors"
	"fmt"
	status "net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/http"
	"github.com/headstart-mesh/headstart/shim/objects/source/redis"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/ownlist"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// listTimeout is how long a program waits for the first list: as long as a request waits for the first functions.
const listTimeout = 5 * time.Second

// Stores are a node's.
type Stores struct {
	secrets *os.Root // nil: the node has no secrets
	missing error    // why not
	own     *own     // nil: the control plane says which stores there are

	came chan struct{} // closed by the first list
	once sync.Once

	mu   sync.Mutex
	open map[string]*store
	// since is when the list first said of buckets that they are written behind. See Pend.
	since   map[bucket]time.Time
	pending Pending // nil: nothing is written behind
	after   time.Duration
	// streamless: there are no streams any more.
	streamless bool
}

type store struct {
	config *nodeapi.Store
	// credentials reads the store's secret; nil if it has none.
	credentials func(context.Context) (secret.Secret, error)
	source      *observed // of no use with err
	err         error     // the store cannot be used as it is configured
	// streams are connections other than those that inputs come by: a consumer's waits. nil: nobody
	// has asked for a stream.
	streams *goredis.Client
}

// opened is a source that holds connections.
type opened interface {
	source.Source
	Close()
}

// Open returns the stores of the node's own list, a file; empty: none yet, Set brings them. A directory of
// secrets need not exist.
func Open(secretsDir, list string) (*Stores, error) {
	s := &Stores{came: make(chan struct{}), open: map[string]*store{}, since: map[bucket]time.Time{}}
	var err error
	if s.secrets, err = os.OpenRoot(secretsDir); err != nil {
		s.missing = fmt.Errorf("--secrets-dir: %w", err)
		if !errors.Is(err, os.ErrNotExist) {
			return nil, s.missing
		}
	}
	if list != "" {
		s.own = ownlist.At(list, listed.Load)
		_ = s.look() // Watch tells what is wrong
	}
	return s, nil
}

// Close ends the connections to the stores.
func (s *Stores) Close() {
	s.replace(nil)
	if s.secrets != nil {
		_ = s.secrets.Close() // it was only read from
	}
}

// Set takes the control plane's list. It does not count on a node that has its own: a control plane that
// somebody has taken over would have the stores' credentials sent to servers of its choice.
func (s *Stores) Set(list []*nodeapi.Store) {
	if s.own == nil {
		s.replace(list)
	}
}

// replace replaces the list. Stores that stay as they are keep their connections.
func (s *Stores) replace(list []*nodeapi.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*store, len(list))
	for _, c := range list {
		s.note(c.GetName(), c.GetWrite())
		if old, ok := s.open[c.GetName()]; ok && proto.Equal(old.config, c) {
			next[c.GetName()] = old
			delete(s.open, c.GetName())
			continue
		}
		credentials := s.credentials(c)
		src, err := newSource(c, credentials)
		next[c.GetName()] = &store{config: c, credentials: credentials,
			source: &observed{opened: src, stores: s, name: c.GetName(), server: serverOf(c)}, err: err}
	}
	for _, gone := range s.open {
		if gone.err == nil {
			gone.source.Close()
		}
		gone.closeStreams()
	}
	s.open = next
	s.once.Do(func() { close(s.came) })
}

// Await returns when the control plane's first list has come, listTimeout has passed, or ctx ends. A daemon that follows another
// has its sandboxes before it has a list.
func (s *Stores) Await(ctx context.Context) {
	if s.own != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	select {
	case <-s.came:
	case <-ctx.Done():
	}
}

// known is an error while there is no list: it is nobody's fault that a store is not on it.
func (s *Stores) known(field string) error {
	select {
	case <-s.came:
		return nil
	default:
	}
	why := "it has not heard from the control plane since it started"
	if s.own != nil {
		why = "its own cannot be read"
	}
	return problem.New(status.StatusServiceUnavailable, "StoresUnknown", field,
		"the node has no list of stores yet: "+why+"; `headstart status` shows more")
}

// Rule is what the operator says of a store's bucket. Of one that is not on the list the store's source is asked, which
// refuses it.
func (s *Stores) Rule(name, of string) objects.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.open[name]
	if !ok || !slices.Contains(st.config.GetBuckets(), of) {
		return objects.Rule{Fresh: objects.Ask, Unlisted: true}
	}
	r := objects.Rule{Shared: slices.Contains(st.config.GetShared(), of), Fresh: objects.ByStore,
		Write: st.config.GetWrite()[of]}
	since, behind := s.behind(bucket{name, of})
	if r.Pending = behind; behind {
		r.Fresh = objects.Ask // objects' own headers could have answers hold that another node's write has made wrong
	}
	if r.Write == listed.WriteBack && (!behind || since < s.after) {
		r.Write = listed.WriteThrough
	}
	if fresh, said := st.config.GetFresh()[of]; said {
		r.Fresh = max(0, fresh.AsDuration())
	}
	return r
}

// newSource opens a store by its kind.
func newSource(c *nodeapi.Store, credentials func(context.Context) (secret.Secret, error)) (opened, error) {
	switch c.GetKind() {
	case "", source.SchemeS3: // a control plane of before knows no other
		provider, err := s3Credentials(c, credentials)
		if err != nil {
			return nil, err
		}
		return s3.New(s3.Config{Store: c.GetName(), Endpoint: c.GetEndpoint(), Region: c.GetRegion(),
			PathStyle: c.GetPathStyle(), Buckets: c.GetBuckets(), Credentials: provider})
	case source.SchemeRedis:
		return redis.New(redis.Config{Store: c.GetName(), Address: c.GetEndpoint(), TLS: c.GetTls(),
			Database: int(c.GetDatabase()), Buckets: c.GetBuckets(), Credentials: credentials})
	case source.SchemeHTTP:
		return http.New(http.Config{Store: c.GetName(), Buckets: c.GetBuckets(), Credentials: credentials,
			Public: c.GetPublicAddresses()})
	}
	return nil, fmt.Errorf("its kind %.20q is none that this node knows", c.GetKind())
}

// s3Credentials are those of a store of S3.
func s3Credentials(c *nodeapi.Store, read func(context.Context) (secret.Secret, error)) (aws.CredentialsProvider, error) {
	switch c.GetCredentials() {
	case "":
		return s3.FromSecret(read), nil
	case listed.CredentialsWorkload:
		return s3.Workload(c.GetRegion()), nil
	case listed.CredentialsAnonymous:
		return s3.Anonymous(), nil
	}
	return nil, fmt.Errorf("its credentials %.20q are none that this node knows", c.GetCredentials())
}

// serverOf says in words what decides which server's objects a store has, and how far that is known.
func serverOf(c *nodeapi.Store) string {
	of := fmt.Sprintf("%s %q %q %q %d %t %t", c.GetKind(), c.GetEndpoint(), c.GetRegion(), c.GetSecret(), c.GetDatabase(), c.GetTls(), c.GetPublicAddresses())
	if c.GetCredentials() != "" {
		of += " " + c.GetCredentials()
	}
	return of // what a daemon of before has kept is still the store's
}

// loads read secrets of the kinds' own forms.
var loads = map[string]func(secrets *os.Root, name string) (secret.Secret, error){
	"": s3.LoadCredentials, source.SchemeS3: s3.LoadCredentials,
	source.SchemeRedis: redis.LoadCredentials, source.SchemeHTTP: http.LoadCredentials,
}

// credentials returns what reads the store's secret, nil if it has none and needs none.
func (s *Stores) credentials(c *nodeapi.Store) func(context.Context) (secret.Secret, error) {
	load := loads[c.GetKind()]
	needed := (c.GetKind() == "" || c.GetKind() == source.SchemeS3) && c.GetCredentials() == ""
	if load == nil || c.GetSecret() == "" && !needed {
		return nil
	}
	return func(context.Context) (secret.Secret, error) {
		if s.secrets == nil {
			return secret.Secret{}, s.missing
		}
		return load(s.secrets, c.GetSecret())
	}
}

// Source is where the inputs of a store come from, for a function.
func (s *Stores) Source(function, name string) (source.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.known(filterapi.AnnotationStore); err != nil {
		return nil, err
	}
	st, ok := s.open[name]
	switch {
	case !ok:
		return nil, problem.New(status.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationStore,
			fmt.Sprintf("store %q is not on the operator's list%s", name, s.delay()))
	case !st.grants(function):
		return nil, problem.New(status.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationStore,
			fmt.Sprintf("store %q is not for the functions of the namespace%s", name, s.delay()))
	case st.err != nil:
		return nil, fmt.Errorf("store %q: %w", name, st.err)
	}
	return st.source, nil
}

// S3 is a store whose S3 API the functions of a namespace may use.
func (s *Stores) S3(function, name string) (*s3.Source, error) {
	from, err := s.Source(function, name)
	if err != nil {
		return nil, err
	}
	api, is := from.(*observed).opened.(*s3.Source)
	if !is {
		return nil, problem.New(status.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationS3,
			fmt.Sprintf("store %q does not have the S3 API", name))
	}
	return api, nil
}

// grants tells whether a function may use the store. Functions have the names namespace/name.
func (st *store) grants(function string) bool {
	granted := st.config.GetNamespaces()
	namespace, _, _ := strings.Cut(function, "/")
	return len(granted) == 0 || slices.Contains(granted, namespace)
}
