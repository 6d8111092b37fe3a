package admin

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// ControlPlane is one of several control planes.
type ControlPlane struct {
	Name string `json:"name"`
	// InCharge: it is the one that scales to zero and writes the mesh's configuration.
	InCharge bool   `json:"inCharge"`
	Version  string `json:"version,omitempty"`
	// Nodes is how many are connected.
	Nodes int `json:"nodes"`
	// Problem is why it does not answer, empty if it does.
	Problem string `json:"problem,omitempty"`
}

// replicas are the control planes of one cluster, found when they are asked first.
type replicas struct {
	find func(ctx context.Context) (names []string, err error)
	dial func(ctx context.Context, name string) (net.Conn, error)

	mu  sync.Mutex
	all []*replica // sorted by name
}

type replica struct {
	name string
	*Client
}

// NewClientOfAll returns a client that asks all control planes of a cluster as if they were
// one: what each was told alone is put together. find names them, dial connects to one of them,
// as in NewClientOver.
func NewClientOfAll(find func(ctx context.Context) (names []string, err error), dial func(ctx context.Context, name string) (net.Conn, error)) *Client {
	return &Client{replicas: &replicas{find: find, dial: dial}}
}

func (r *replicas) each(ctx context.Context) ([]*replica, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all != nil {
		return r.all, nil
	}
	names, err := r.find(ctx)
	if err == nil && len(names) == 0 {
		err = errors.New("there is no control plane")
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r.all = append(r.all, &replica{name, NewClientOver(func(ctx context.Context) (net.Conn, error) { return r.dial(ctx, name) })})
	}
	slices.SortFunc(r.all, func(a, b *replica) int { return cmp.Compare(a.name, b.name) })
	return r.all, nil
}

func (r *replicas) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		one.Close()
	}
	r.all = nil
}

// first has those asked one after the other until one answers; only the first one, if the
// question may not be repeated. Who is in charge matters to Status alone.
func (r *replicas) first(ctx context.Context, repeat bool, ask func(*Client) error) error {
	all, err := r.each(ctx)
	for _, one := range all {
		if err = ask(one.Client); err == nil || !repeat || !errors.Is(err, errNoAnswer) {
			return err
		}
	}
	return err
}

// asked is what one of them answered.
type asked[T any] struct {
	name   string
	answer T
	err    error
}

// askAll asks all at the same time.
func askAll[T any](ctx context.Context, r *replicas, ask func(*Client) (T, error)) ([]asked[T], error) {
	all, err := r.each(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([]asked[T], len(all))
	var asking sync.WaitGroup
	for i, one := range all {
		asking.Go(func() {
			answers[i].name = one.name
			answers[i].answer, answers[i].err = ask(one.Client)
		})
	}
	asking.Wait()
	return answers, nil
}

// status is that of the one in charge, or else of the first that answers, with the nodes that
// are connected to others only, and what is wrong at their gateways.
func (r *replicas) status(ctx context.Context) (Status, error) {
	answers, err := askAll(ctx, r, func(c *Client) (Status, error) { return c.Status(ctx) })
	if err != nil {
		return Status{}, err
	}
	best := slices.IndexFunc(answers, func(a asked[Status]) bool { return a.err == nil && a.answer.InCharge })
	if best < 0 {
		best = slices.IndexFunc(answers, func(a asked[Status]) bool { return a.err == nil })
	}
	if best < 0 {
		return Status{}, answers[0].err
	}
	s := answers[best].answer
	known := map[string]int{}
	for i, n := range s.Nodes {
		known[n.Name] = i
	}
	for i, a := range answers {
		one := ControlPlane{Name: a.name, InCharge: a.answer.InCharge, Version: a.answer.Version, Nodes: len(a.answer.Nodes)}
		if a.err != nil {
			one.Problem = a.err.Error()
		}
		s.ControlPlanes = append(s.ControlPlanes, one)
		if i == best {
			continue
		}
		fresh := map[string]bool{}
		for _, n := range a.answer.Nodes {
			if _, is := known[n.Name]; !is {
				known[n.Name] = len(s.Nodes)
				s.Nodes = append(s.Nodes, n)
				fresh[n.Name] = true
			}
		}
		for _, p := range a.answer.Routing {
			p.Gateways = slices.DeleteFunc(p.Gateways, func(name string) bool { return !fresh[name] })
			if len(p.Gateways) > 0 {
				s.Routing = append(s.Routing, p)
			}
		}
	}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for i := range s.Nodes {
			if !slices.ContainsFunc(a.answer.Nodes, func(n Node) bool { return n.Name == s.Nodes[i].Name }) {
				s.Nodes[i].Away = append(s.Nodes[i].Away, a.name)
			}
		}
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// trace is put together from the spans that each has got.
func (r *replicas) trace(ctx context.Context, id string) (trace.Trace, error) {
	answers, err := askAll(ctx, r, func(c *Client) (trace.Trace, error) { return c.Trace(ctx, id) })
	if err != nil {
		return trace.Trace{}, err
	}
	parts, err := known(answers)
	if err != nil {
		return trace.Trace{}, err
	}
	if parts[0].ID == id {
		return trace.Merge(parts...), nil
	}
	// By a request's id each tells the part that it can tell belongs to it. Who has no span that
	// names the request knows the trace only.
	whole, err := askAll(ctx, r, func(c *Client) (trace.Trace, error) { return c.Trace(ctx, parts[0].ID) })
	if err != nil {
		return trace.Trace{}, err
	}
	if parts, err = known(whole); err != nil {
		return trace.Trace{}, err
	}
	return trace.Merge(parts...).Of(id), nil
}

// traces is what all of them list.
func (r *replicas) traces(ctx context.Context, namespace string) (trace.Listing, error) {
	answers, err := askAll(ctx, r, func(c *Client) (trace.Listing, error) { return c.Traces(ctx, namespace) })
	if err != nil {
		return trace.Listing{}, err
	}
	parts, err := known(answers)
	if err != nil {
		return trace.Listing{}, err
	}
	return trace.MergeListings(parts...), nil
}

// known are the answers that there are. Where there is none, one that knows why says more than
// one that does not know, and that more than one that does not answer.
func known[T any](answers []asked[T]) (parts []T, err error) {
	for _, a := range answers {
		if a.err == nil {
			parts = append(parts, a.answer)
		} else if err == nil || errors.Is(err, errNoAnswer) || isUnknown(err) && !errors.Is(a.err, errNoAnswer) {
			err = a.err
		}
	}
	if len(parts) > 0 {
		return parts, nil
	}
	return nil, err
}

func isUnknown(err error) bool {
	r, is := errors.AsType[*refused](err)
	return is && r.Title == reasonTraceUnknown
}

// errNoAnswer marks errors of calls that got none.
var errNoAnswer = errors.New("no answer")

// unanswered has the text of its cause alone.
type unanswered struct{ error }

func (u unanswered) Unwrap() []error { return []error{u.error, errNoAnswer} }
