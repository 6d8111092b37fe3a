package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// expectations are what the node's gateways reckon with: the control plane says a line of each
// function, and the gateways' route filters get all lines as one text. It is data, and nothing else: what
// runs in a gateway is not the daemon's to say.
type expectations struct {
	*resources
	session bool                  // the filter names endpoints in filterapi.HeaderSession
	none    bool                  // whatever the control plane says: weights alone decide
	picked  func(sorted []string) // hears of which clusters
	lines   map[string]string     // by the resource's name; of resources' mu

	mu      sync.Mutex
	text    []byte
	version string
	changed chan struct{} // closed when they have been
}

// newExpectations has picked hear the clusters of which there are lines.
func newExpectations(cfg Config, changed chan struct{}, picked func([]string)) *expectations {
	// Clusters of a mesh may eject endpoints; those of an own gateway do not.
	e := &expectations{session: cfg.Gateway == nil, none: cfg.WeightsAlone, picked: picked, lines: map[string]string{}, changed: make(chan struct{})}
	e.resources = newResources(resource.ExtensionConfigType, changed, e.compose)
	// All that the filter takes: a line is shorter than the resource that it comes in.
	e.most, e.mostBytes = filterapi.MaxFunctions, filterapi.MaxConfigBytes
	e.check = checkLine
	e.set([]byte(filterapi.Version + "\n"))
	if e.none {
		e.prime()
	}
	return e
}

// lineOf is a function's line.
func lineOf(r types.Resource) (string, error) {
	c, ok := r.(*core.TypedExtensionConfig)
	if !ok {
		return "", errors.New("is no extension's configuration")
	}
	var line wrapperspb.StringValue
	if err := c.GetTypedConfig().UnmarshalTo(&line); err != nil {
		return "", err
	}
	return line.GetValue(), nil
}

// checkLine refuses what the filter would refuse, and all that comes with it.
func checkLine(r types.Resource) error {
	line, err := lineOf(r)
	if err == nil {
		_, err = filterapi.ParseRouteFunction(line)
	}
	return err
}

// compose makes one text of all lines. Of several that are of one cluster, which the
// filter would refuse, the first by name counts. Functions beyond filterapi.MaxRouteTotal go by weight.
func (e *expectations) compose(added map[string]*discovery.Resource, removed []string) error {
	for name, res := range added {
		var c core.TypedExtensionConfig
		if err := res.GetResource().UnmarshalTo(&c); err != nil {
			return err
		}
		line, err := lineOf(&c)
		if err != nil {
			return err
		}
		e.lines[name] = line
	}
	for _, name := range removed {
		delete(e.lines, name)
	}
	if e.none {
		return nil
	}
	config := filterapi.RouteConfig{Session: e.session}
	var clusters []string
	taken, left := make(map[string]bool, len(e.lines)), filterapi.MaxRouteTotal
	for _, name := range slices.Sorted(maps.Keys(e.lines)) {
		line := e.lines[name]
		endpoints := filterapi.RouteEndpoints(line)
		if cluster := filterapi.RouteCluster(line); !taken[cluster] && endpoints <= left {
			taken[cluster] = true
			left -= endpoints
			config.Lines, clusters = append(config.Lines, line), append(clusters, cluster)
		}
	}
	text, err := config.Marshal()
	if err != nil {
		return fmt.Errorf("what the route filter expects: %w", err)
	}
	e.set(text)
	slices.Sort(clusters)
	e.picked(clusters)
	return nil
}

func (e *expectations) set(text []byte) {
	sum := sha256.Sum256(text)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.version = text, strconv.Quote(hex.EncodeToString(sum[:versionBytes]))
	close(e.changed)
	e.changed = make(chan struct{})
}

// versionBytes tell one text from all others that a daemon has had.
const versionBytes = 8

func (e *expectations) now() (text []byte, version string, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text, e.version, e.changed
}

// Expectations tells the route filter of each of the gateways' workers what to expect: what is not what that
// has, as soon as it is known.
func (r *Relay) Expectations() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		leave, err := r.limits.enter()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		held := time.NewTimer(filterapi.ExpectationsHeld)
		defer held.Stop()
		changed := (<-chan struct{})(r.expectations.primed)
		for {
			select {
			case <-changed:
				text, version, next := r.expectations.now()
				if changed = next; version == q.Header.Get(filterapi.HeaderKnown) {
					continue
				}
				w.Header().Set(filterapi.HeaderVersion, version)
				_, _ = w.Write(text) // a worker that does not get it asks again
				return
			case <-held.C:
			case <-r.over: // the next daemon holds it
			case <-q.Context().Done():
			}
			w.WriteHeader(http.StatusNotModified)
			return
		}
	})
}
