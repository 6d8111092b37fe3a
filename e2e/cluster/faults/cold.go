package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// coldInterval is between two cold requests. Each function needs some ten seconds until
	// it is back at zero: its idle window, the quiet time, its pod's end.
	coldInterval = 2500 * time.Millisecond
	// coldTimeout is more than Headstart lets a request wait for placement and readiness.
	coldTimeout = 60 * time.Second
	// refusedWithin is how long it may take to say that a request cannot be placed now: the
	// control plane's 14 s, and the way.
	refusedWithin = 16 * time.Second
	// unreachableWithin is how long a request may be placed again, 15 s, and then try once more to
	// connect to a node that is lost, 5 s, and the way.
	unreachableWithin = 21 * time.Second
	// askTimeout bounds a look at a function's scale, which a cluster without API server
	// does not answer.
	askTimeout = time.Second
	answerMost = 1 << 20
	// noProblem stands for the title of answers that are no problem details, such as those
	// of a mesh's gateway.
	noProblem = "no problem details"
)

// Cold is what became of cold requests.
type Cold struct {
	Sent int
	// AtZero are those of them whose function was seen without an instance just before.
	AtZero int
	// Refused are those that were answered with a problem that the fault allows, by its title;
	// Lost are all others that were not answered well.
	Refused map[string]int
	Lost    int
	// functions are those whose requests were refused, by the problem's title, with how many were.
	functions map[string]map[string]int
	// Reasons counts both by what was wrong with them.
	Reasons map[string]int
	// Longest is the longest that was answered, LongestRefusal the longest that was refused.
	Longest, LongestRefusal time.Duration
}

// refusal is what docs/architecture.md allows a fault to do to cold requests: it keeps new
// instances from coming up, also without Headstart.
type refusal struct {
	// title is the problem's.
	title string
	// most is of how many functions the requests may get it; 0: of all.
	most int
	// within is how soon it is said.
	within time.Duration
}

func newCold() Cold {
	return Cold{Refused: map[string]int{}, Reasons: map[string]int{}, functions: map[string]map[string]int{}}
}

func (c Cold) refused() (n int) {
	for _, times := range c.Refused {
		n += times
	}
	return n
}

func (c Cold) String() string {
	return fmt.Sprintf("%d of %d (%d at zero, %d refused, the longest %.1f s)", c.Lost, c.Sent, c.AtZero, c.refused(), c.Longest.Seconds())
}

// answer is one answer to a cold request.
type answer struct {
	took    time.Duration
	status  int
	problem problem.Problem // zero unless it is one
	err     error           // the connection's
}

func (a answer) ok() bool { return a.err == nil && a.status == http.StatusOK }

func (a answer) String() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.problem.Title != "":
		return fmt.Sprintf("%d %s: %s", a.status, a.problem.Title, a.problem.Detail)
	}
	return fmt.Sprintf("%d", a.status)
}

// ask sends one request with an input.
func (r *rig) ask(ctx context.Context, function string) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, coldTimeout)
	defer cancel()
	began := time.Now()
	defer func() { a.took = time.Since(began) }()
	req, err := r.request(function, "/", true)(ctx)
	if err != nil {
		return answer{err: err}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	a = answer{status: resp.StatusCode, err: err}
	if err == nil && !a.ok() && json.Unmarshal(body, &a.problem) != nil {
		a.problem = problem.Problem{Title: noProblem, Detail: fmt.Sprintf("%.200s", body)}
	}
	return a
}

// knock sends cold requests until stop is called, which waits for the answers. The first
// comes at once.
func (r *rig) knock(ctx context.Context, refusals []refusal) (stop func() Cold) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var mu sync.Mutex
	c := newCold()
	all.Go(func() {
		a := r.ask(context.WithoutCancel(ctx), first)
		mu.Lock()
		defer mu.Unlock()
		c.note(first, a, true, refusals)
	})
	all.Go(func() {
		tick := time.NewTicker(coldInterval)
		defer tick.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			function := coldFunctions[turn%len(coldFunctions)]
			all.Go(func() {
				atZero := r.atZero(ctx, function)
				// Requests under way outlive the knocking: their answers count.
				a := r.ask(context.WithoutCancel(ctx), function)
				mu.Lock()
				defer mu.Unlock()
				c.note(function, a, atZero, refusals)
			})
		}
	})
	return func() Cold {
		cancel()
		all.Wait()
		return c
	}
}

// add takes over what became of others in the same fault: how many functions may be refused is for all
// of them.
func (c *Cold) add(more Cold, refusals []refusal) {
	c.Sent, c.AtZero = c.Sent+more.Sent, c.AtZero+more.AtZero
	c.Lost += more.Lost
	for reason, times := range more.Reasons {
		c.Reasons[reason] += times
	}
	for title, functions := range more.functions {
		i := slices.IndexFunc(refusals, func(r refusal) bool { return r.title == title })
		for _, function := range slices.Sorted(maps.Keys(functions)) {
			times := functions[function]
			if i < 0 || c.tooMany(refusals[i], function) {
				c.Lost += times
				c.Reasons[fmt.Sprintf("LOST: %s of %s, one more function than the %d that are allowed", title, function, refusals[i].most)] += times
				continue
			}
			c.refuse(title, function, times)
		}
	}
	c.Longest, c.LongestRefusal = max(c.Longest, more.Longest), max(c.LongestRefusal, more.LongestRefusal)
}

// tooMany tells whether as many other functions are refused as may be.
func (c *Cold) tooMany(r refusal, function string) bool {
	_, before := c.functions[r.title][function]
	return r.most > 0 && !before && len(c.functions[r.title]) >= r.most
}

func (c *Cold) refuse(title, function string, times int) {
	if c.functions[title] == nil {
		c.functions[title] = map[string]int{}
	}
	c.functions[title][function] += times
	c.Refused[title] += times
}

func (c *Cold) note(function string, a answer, atZero bool, refusals []refusal) {
	c.Sent++
	if atZero {
		c.AtZero++
	}
	if a.ok() {
		c.Longest = max(c.Longest, a.took)
		return
	}
	i := slices.IndexFunc(refusals, func(r refusal) bool { return r.title == a.problem.Title })
	if i < 0 || a.took > refusals[i].within || c.tooMany(refusals[i], function) {
		c.Lost++
		c.Reasons[fmt.Sprintf("LOST after %.1f s, %s: %v", a.took.Seconds(), function, a)]++
		return
	}
	c.Reasons[a.String()]++
	c.refuse(a.problem.Title, function, 1)
	c.LongestRefusal = max(c.LongestRefusal, a.took)
}

// atZero says whether the function is seen to have no instance.
func (r *rig) atZero(ctx context.Context, function string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d, err := r.kube.AppsV1().Deployments(world.Functions).Get(ctx, function, metav1.GetOptions{})
	return err == nil && *d.Spec.Replicas == 0
}

// takesPods tells whether Kubernetes lets pods onto any node. Where that cannot be read they may.
func (r *rig) takesPods(ctx context.Context) bool {
	nodes, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err != nil || slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
	})
}

// askPlaced asks, and tells whether the cluster took pods all the while: it may refuse them for most of the time that a
// request waits, and take them again at its end.
func (r *rig) askPlaced(ctx context.Context, function string) (a answer, placed bool) {
	answered := make(chan answer, 1)
	go func() { answered <- r.ask(ctx, function) }()
	for placed = true; ; {
		placed = placed && r.takesPods(ctx)
		select {
		case a = <-answered:
			return a, placed && (a.ok() || r.takesPods(ctx))
		case <-time.After(retryInterval):
		}
	}
}

// again waits until a cold request is answered well and notes how long that took since the cluster
// takes pods: after its API server was away Kubernetes may taint all nodes once more, late. What is
// refused until then may be.
func (r *rig) again(ctx context.Context, function string, o *Outcome, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, rolloutTimeout)
	defer cancel()
	began := time.Now()
	for {
		a, placed := r.askPlaced(ctx, function)
		if !a.ok() && !placed {
			began = time.Now()
		}
		o.Recovery = time.Since(began)
		switch {
		case a.ok():
			if o.Recovery > most {
				o.broken("cold requests were answered again only %.1f s after the fault's end", o.Recovery.Seconds())
			}
			return
		case o.Recovery > 2*most || ctx.Err() != nil:
			o.broken("cold requests are not answered again %.1f s after the fault's end: %v", o.Recovery.Seconds(), a)
			return
		}
		if wait(ctx, retryInterval) != nil {
			return
		}
	}
}
