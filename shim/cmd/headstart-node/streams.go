package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
	redissource "github.com/headstart-mesh/headstart/shim/source/redis"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/trigger/redis"
)

// streams are the stores as far as they have streams. Their connections are others than
// those that inputs come by: a consumer's waits.
type streams struct {
	secrets *os.Root // nil: the node has no secrets
	// gone tells which consumers are; nil: of none it is known.
	gone func(consumer string) bool

	mu      sync.Mutex
	stores  map[string]*nodeapi.Store
	clients map[string]*goredis.Client // of the stores that have been asked for
}

func newStreams(secrets *os.Root) *streams {
	return &streams{secrets: secrets, stores: map[string]*nodeapi.Store{}, clients: map[string]*goredis.Client{}}
}

// Close ends the connections.
func (s *streams) Close() { s.set(nil) }

// set replaces the list of stores. Those that stay as they are keep their connections.
func (s *streams) set(list []*nodeapi.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*nodeapi.Store, len(list))
	for _, c := range list {
		next[c.GetName()] = c
	}
	for name, client := range s.clients {
		if c := next[name]; c == nil || !proto.Equal(c, s.stores[name]) {
			_ = client.Close() // it has nothing left to say
			delete(s.clients, name)
		}
	}
	s.stores = next
}

// open returns a consumer's part in the stream of a trigger. The control plane has checked
// the trigger against the operator's list; so does each command's client.
func (s *streams) open(t *nodeapi.Trigger, consumer string) (trigger.Stream, error) {
	ref, err := source.ParseReference(t.GetStream())
	if err != nil {
		return nil, err
	}
	return redis.New(redis.Config{Key: ref.Bucket + ":" + ref.Key, Function: t.GetFunction(), Consumer: consumer, Gone: s.gone,
		Client: func() (*goredis.Client, error) { return s.client(t.GetStore(), ref) }}), nil
}

// client is the store's, if that has the stream.
func (s *streams) client(name string, ref source.Reference) (*goredis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stores[name]
	if c.GetKind() != source.SchemeRedis || ref.Scheme != source.SchemeRedis || !slices.Contains(c.GetBuckets(), ref.Bucket) {
		return nil, problem.New(http.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationTrigger, fmt.Sprintf("store %q is not on the operator's list as a redis one with bucket %q", name, ref.Bucket))
	}
	if client := s.clients[name]; client != nil {
		return client, nil
	}
	server := redis.Server{Address: c.GetEndpoint(), TLS: c.GetTls(), Database: int(c.GetDatabase())}
	if c.GetSecret() != "" {
		server.Credentials = func(context.Context) (user, password string, err error) { return s.credentials(c.GetSecret()) }
	}
	s.clients[name] = server.NewClient()
	return s.clients[name], nil
}

func (s *streams) credentials(secret string) (user, password string, err error) {
	if s.secrets == nil {
		return "", "", errors.New("the node has no secrets directory")
	}
	loaded, err := redissource.LoadCredentials(s.secrets, secret)
	if err != nil {
		return "", "", err
	}
	return loaded.Get("username"), loaded.Get("password"), nil
}

// endTriggers lets go of the streams when the daemon ends: what functions work on has the
// same time as their other requests. Then servers that do not answer are not waited for.
func endTriggers(ctx context.Context, triggers *trigger.Set, streams *streams, log *slog.Logger) {
	<-ctx.Done()
	if err := serve.Bounded(ctx, shutdownTimeout, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, streams.Close)()
		return triggers.Close(ctx)
	}); err != nil {
		log.Warn("entries of streams stay pending; they are delivered again", "error", err)
	}
}
