package stores

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/trigger/redis"
)

// Stream returns a consumer's part in the stream of a trigger. The control plane has checked the
// trigger against the operator's list; so does each command's client. gone tells which consumers
// are; nil: of none it is known.
func (s *Stores) Stream(t *nodeapi.Trigger, consumer string, gone func(consumer string) bool) (trigger.Stream, error) {
	ref, err := source.ParseReference(t.GetStream())
	if err != nil {
		return nil, err
	}
	return redis.New(redis.Config{Key: ref.Bucket + ":" + ref.Key, Function: t.GetFunction(), Consumer: consumer, Gone: gone,
		Client: func() (*goredis.Client, error) { return s.client(t.GetFunction(), t.GetStore(), ref) }}), nil
}

// EndStreams ends the connections to streams, and lets none begin.
func (s *Stores) EndStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamless = true
	for _, st := range s.open {
		st.closeStreams()
	}
}

func (st *store) closeStreams() {
	if st.streams != nil {
		_ = st.streams.Close() // it has nothing left to say
		st.streams = nil
	}
}

// client is the store's, if that has the stream and is for the function.
func (s *Stores) client(function, name string, ref source.Reference) (*goredis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.known(filterapi.AnnotationTrigger); err != nil {
		return nil, err
	}
	st := s.open[name]
	if s.streamless || st == nil || !st.grants(function) ||
		st.config.GetKind() != source.SchemeRedis || ref.Scheme != source.SchemeRedis || !slices.Contains(st.config.GetBuckets(), ref.Bucket) {
		return nil, problem.New(http.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationTrigger,
			fmt.Sprintf("store %q is not on the operator's list as a redis one with bucket %q for the function's namespace%s", name, ref.Bucket, s.delay()))
	}
	if st.streams == nil {
		c := st.config
		server := redis.Server{Store: name, Address: c.GetEndpoint(), TLS: c.GetTls(), Database: int(c.GetDatabase())}
		if st.credentials != nil {
			server.Credentials = func(ctx context.Context) (user, password string, err error) {
				loaded, err := st.credentials(ctx)
				return loaded.Get("username"), loaded.Get("password"), err
			}
		}
		st.streams = server.NewClient()
	}
	return st.streams, nil
}
