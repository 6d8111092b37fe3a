package connections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/ownlist"
)

const (
	// lookEvery is how often the list, the secrets and the addresses are looked at: small files, name servers that are near,
	// and soon enough for a server that has failed over.
	lookEvery = 5 * time.Second
	// looksMost is how many destinations are looked at at the same time: most of a look is waiting for a name server.
	looksMost = 16
	// problemsMost and wordsMost are how much the control plane is told.
	problemsMost = 20
	wordsMost    = 512
)

// list is the operator's, a file on the node, or the control plane's.
type list struct {
	secrets *os.Root // nil: the node has none
	own     *ownlist.File[destinations.Destinations]
	// renew hears of a destination that is another one than before.
	renew func(name string)

	mu   sync.Mutex
	all  map[string]*destination
	came chan struct{} // closed when there is another list
}

func openList(secretsDir, path string, renew func(string)) (*list, error) {
	l := &list{renew: renew, came: make(chan struct{}), all: map[string]*destination{}}
	var err error
	if l.secrets, err = os.OpenRoot(secretsDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--secrets-dir: %w", err)
	}
	if path != "" {
		l.own = ownlist.At(path, func(path string) (destinations.Destinations, error) {
			return destinations.Load(path, destinations.Sandbox)
		})
		_ = l.read() // watch tells what is wrong
	}
	return l, nil
}

func (l *list) close() {
	l.mu.Lock()
	for _, d := range l.all {
		d.shut(true)
	}
	l.mu.Unlock()
	if l.secrets != nil {
		_ = l.secrets.Close() // it was only read from
	}
}

// read reads the node's own list if that is another one than before.
func (l *list) read() error {
	if l.own == nil {
		return nil
	}
	now, changed, err := l.own.Look()
	if changed {
		l.replace(now.Messages())
	}
	return err
}

// replace replaces the list.
func (l *list) replace(now []*nodeapi.Destination) {
	l.mu.Lock()
	next := make(map[string]*destination, len(now))
	var gone []*destination
	for _, c := range now {
		name := c.GetName()
		if before := l.all[name]; before != nil && proto.Equal(before.config, c) {
			next[name] = before
			continue
		}
		next[name] = newDestination(c, l.secrets)
	}
	for name, before := range l.all {
		if next[name] != before {
			gone = append(gone, before)
		}
	}
	l.all = next
	close(l.came)
	l.came = make(chan struct{})
	l.mu.Unlock()
	for _, d := range gone {
		d.shut(true)
		l.renew(d.config.GetName())
	}
}

// await returns a destination for a function of the namespace as soon as the list has it, until ctx ends.
func (l *list) await(ctx context.Context, name, namespace string) (*destination, error) {
	for {
		l.mu.Lock()
		came := l.came
		l.mu.Unlock()
		d, err := l.get(name, namespace)
		if err == nil {
			return d, nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// get returns a destination for a function of the namespace.
func (l *list) get(name, namespace string) (*destination, error) {
	l.mu.Lock()
	d := l.all[name]
	l.mu.Unlock()
	switch {
	case d == nil:
		return nil, fmt.Errorf("destination %.64q is not on the operator's list", name)
	case !d.grants(namespace):
		return nil, fmt.Errorf("destination %.64q is not for the functions of the namespace", name)
	}
	return d, nil
}

// look returns what is wrong with the list and the destinations, and has those renewed that are others than before.
func (l *list) look(ctx context.Context, used map[string]bool) (m *nodeapi.DestinationProblems, changed bool) {
	m = &nodeapi.DestinationProblems{}
	problem := func(name, said string) {
		m.Problems = append(m.Problems, &nodeapi.DestinationProblem{Destination: name,
			Message: strings.ToValidUTF8(said[:min(len(said), wordsMost)], "")})
	}
	if err := l.read(); err != nil {
		problem("", err.Error())
	}
	l.mu.Lock()
	all := maps.Clone(l.all)
	l.mu.Unlock()
	var looks errgroup.Group
	looks.SetLimit(looksMost)
	var mu sync.Mutex // of m and changed
	for name, d := range all {
		looks.Go(func() error {
			saw, wrong := d.look(ctx, used[name])
			if saw == renewed {
				d.shut(false)
				l.renew(name)
			}
			mu.Lock()
			defer mu.Unlock()
			if changed = changed || saw != same; wrong != "" {
				problem(name, wrong)
			}
			return nil
		})
	}
	_ = looks.Wait() // none fails
	slices.SortFunc(m.Problems, func(a, b *nodeapi.DestinationProblem) int {
		return cmp.Compare(a.GetDestination(), b.GetDestination())
	})
	m.Problems = m.Problems[:min(len(m.Problems), problemsMost)]
	return m, changed
}

// watch looks now and then, and tells of problems that are others than before and of destinations that have changed, until
// ctx ends.
func (l *list) watch(ctx context.Context, used func() map[string]bool, tell func(*nodeapi.DestinationProblems), changed func(),
	log *slog.Logger,
) {
	told := &nodeapi.DestinationProblems{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		m, others := l.look(ctx, used())
		if others {
			changed()
		}
		if ctx.Err() == nil && !proto.Equal(m, told) {
			for _, p := range m.GetProblems() {
				log.Warn("a destination cannot be used", "destination", p.GetDestination(), "problem", p.GetMessage())
			}
			told = m
			tell(m)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *list) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.all))
}
