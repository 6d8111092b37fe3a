package connections

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// journalConnections is how many connections with one destination the node has for the records of workflows' runs.
const journalConnections = 8

// journalTries is how often what was asked is asked again whose connection was lost: the server may have ended it while it was unused. All that is
// asked may be asked twice.
const journalTries = 1

// State returns what asks the Redis of a destination for a workflow, until the destination is changed: one that is granted to the workflow's namespace, and whose
// connections may be the node's. Its errors are problems.
func (s *Server) State(workflow, name string) (*redis.Client, error) {
	namespace, _, _ := strings.Cut(workflow, "/")
	d, err := s.list.get(name, namespace)
	switch {
	case err != nil:
	case d.config.GetKind() != destinations.KindRedis:
		err = fmt.Errorf("destination %s is no Redis", name)
	case !d.onNode():
		err = fmt.Errorf("destination %s has not the origin node, and a workflow has no sandbox to connect from", name)
	case d.err != nil:
		err = fmt.Errorf("destination %s cannot be used: see the node's problems in `headstart status`", name)
	}
	if err != nil {
		return nil, problem.New(http.StatusServiceUnavailable, problem.ReasonStateUnavailable, filterapi.AnnotationState, err.Error())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil, problem.New(http.StatusServiceUnavailable, problem.ReasonStateUnavailable, filterapi.AnnotationState,
			fmt.Sprintf("destination %s is being changed", name))
	}
	if d.store == nil {
		d.store = redis.NewClient(&redis.Options{Addr: name, Protocol: 2, PoolSize: journalConnections, MaxRetries: journalTries, DisableIdentity: true,
			ContextTimeoutEnabled: true, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, dialMost)
				defer cancel()
				w, err := s.open(ctx, d, "", "", func(ctx context.Context) (net.Conn, error) { return d.dial(ctx, fromNode) })
				if err != nil {
					return nil, err
				}
				return w.session.Conn, nil
			}})
	}
	return d.store, nil
}
