//go:build integration

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/e2e/linkemu"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/upstream"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// hotEvery and hotTakes have some requests under way at any time.
	hotEvery, hotTakes = 15 * time.Millisecond, 50 * time.Millisecond
	// longOnes and unreadOnes are begun before the cut, and are not answered until the end. Of
	// the latter the function does not read the body until then.
	longOnes, unreadOnes               = 6, 3
	unread                             = 8 << 20
	idHeader, longHeader, unreadHeader = "X-Id", "X-Long", "X-Unread"
	// some is how many hot requests are sent and answered, at least, between one event and the next.
	some = 30
	// seen is after what time a gateway leaves a node alone to which packets vanish.
	seen = 2 * time.Second
	// broken is after what time a request ends that the node has had, and later, by a machine that
	// has much else to do.
	broken = upstream.Silence + 6*time.Second
)

// parted is a gateway's node, and three others that a link each leads to, with an instance.
type parted struct {
	*bed
	instances []*instance
	// release has the long requests be answered.
	release chan struct{}

	mu    sync.Mutex
	begun map[string][]string  // by whom, by the request's ID
	open  map[string]time.Time // since when
	done  []exchange
}

type instance struct {
	name, address string
	link          *linkemu.Link
}

// exchange is a request as its client sees it.
type exchange struct {
	id        string
	at, ended time.Time
	by        string // empty: it has failed
	why       string
}

func newParted(t *testing.T) *parted {
	t.Helper()
	names := []string{"near", "next", "far"}
	n, err := network.Open(t.Context(), network.Config{Name: "hspart", Nodes: append([]string{"edge"}, names...), Subnet: netip.MustParsePrefix("10.229.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	edge, _ := n.Node("edge")
	p := &parted{begun: map[string][]string{}, open: map[string]time.Time{}, release: make(chan struct{})}
	p.bed = newBed(t, func(b *bed) { b.host, b.namespace = edge.Address.String(), edge.Namespace })
	m, row := &routing.Matrix{}, routing.Row{}
	for i, name := range names {
		node, _ := n.Node(name)
		one := p.connect(edge, node, i+1)
		p.instances = append(p.instances, one)
		m.Endpoints = append(m.Endpoints, netip.MustParseAddrPort(one.address))
		row.Weights = append(row.Weights, 100)
		row.Expected = append(row.Expected, filterapi.Expected{RTT: 2 * delay(i+1), Service: hotTakes, Workers: 16})
	}
	m.Rows = map[string]routing.Row{"edge": row}
	p.weights = routing.Weights{"default/fire": m}
	p.update(p.state())
	// As docs/reference/istio.md has it.
	if err := nsthread.Run(edge.Namespace, func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_retries2", []byte("5"), 0) }); err != nil {
		t.Fatal(err)
	}
	p.startEnvoy(p.plugin())
	p.eventually("the nearest is picked", func() bool {
		p.send(t.Context(), "", nil)
		return p.done[len(p.done)-1].by == names[0]
	})
	p.begun, p.done = map[string][]string{}, nil
	t.Cleanup(loader.CloseIdleConnections)
	return p
}

func delay(number int) time.Duration { return time.Duration(number) * 2 * time.Millisecond }

// connect makes a link from the gateway's node to another one, and that one's instance at its end.
func (p *parted) connect(from, to network.Node, number int) *instance {
	p.t.Helper()
	end := func(last int) string { return fmt.Sprintf("10.230.%d.%d/30", number, last) }
	link, err := linkemu.Open(linkemu.Config{Delay: delay(number),
		A: linkemu.End{Namespace: from.Namespace, Device: "to-" + to.Name, Address: end(1)}, B: linkemu.End{Namespace: to.Namespace, Device: "to-edge", Address: end(2)}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := link.Close(); err != nil {
			p.t.Error(err)
		}
	})
	one := &instance{name: to.Name, link: link, address: fmt.Sprintf("10.230.%d.2:8080", number)}
	var l net.Listener
	if err := nsthread.Run(to.Namespace, func() (err error) { l, err = net.Listen("tcp", one.address); return err }); err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(one, w, r) })}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	p.t.Cleanup(func() { _ = server.Close(); wg.Wait() })
	return one
}

// answer is what an instance does.
func (p *parted) answer(one *instance, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.begun[r.Header.Get(idHeader)] = append(p.begun[r.Header.Get(idHeader)], one.name)
	p.mu.Unlock()
	takes := time.After(hotTakes)
	if r.Header.Get(longHeader) != "" {
		takes = nil
	}
	select {
	case <-takes:
	case <-p.release:
	case <-r.Context().Done():
	}
	if r.Header.Get(unreadHeader) != "" {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	_, _ = io.WriteString(w, one.name)
}

func (p *parted) state() platform.State {
	var addresses []string
	for _, one := range p.instances {
		addresses = append(addresses, one.address)
	}
	return pickedState(addresses...)
}

// send sends a request, and notes what comes of it.
func (p *parted) send(ctx context.Context, id string, body io.Reader, headers ...string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, body)
	if err != nil {
		p.t.Error(err)
		return
	}
	r.Header.Set(idHeader, id)
	for _, name := range headers {
		r.Header.Set(name, "yes")
	}
	e := exchange{id: id, at: time.Now()}
	p.mu.Lock()
	p.open[id] = e.at
	p.mu.Unlock()
	answer, err := loader.Do(r)
	if err != nil {
		e.why = err.Error()
	} else {
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if e.by = string(text); err != nil || answer.StatusCode != http.StatusOK {
			e.by, e.why = "", fmt.Sprintf("%s %s %v", answer.Status, text, err)
		}
	}
	e.ended = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
	p.done = append(p.done, e)
}

// loader never runs out of patience before what it asks does.
var loader = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// load sends hot requests until it is stopped.
func (p *parted) load() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(hotEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				all.Go(func() { p.send(context.WithoutCancel(ctx), fmt.Sprint("hot-", i), nil) })
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// long sends the long requests, and returns when instances have them.
func (p *parted) long() (wait func()) {
	var sent sync.WaitGroup
	for i := range longOnes {
		sent.Go(func() { p.send(p.t.Context(), fmt.Sprint("long-", i), nil, longHeader) })
	}
	for i := range unreadOnes {
		sent.Go(func() {
			p.send(p.t.Context(), fmt.Sprint("unread-", i), strings.NewReader(strings.Repeat("x", unread)), longHeader, unreadHeader)
		})
	}
	p.within(patience, "the long requests' begin", func() bool {
		begun := 0
		for id := range p.begun {
			if !isHot(id) {
				begun++
			}
		}
		return begun == longOnes+unreadOnes
	})
	return sent.Wait
}

func isHot(id string) bool  { return strings.HasPrefix(id, "hot-") }
func isLong(id string) bool { return strings.HasPrefix(id, "long-") }

// answered waits for a hot request that is sent after a time and answered by one. What failed is
// forgiven slowly.
func (p *parted) answered(by string, after time.Time) {
	p.t.Helper()
	p.within(patience, "an answer of "+by, func() bool {
		return slices.ContainsFunc(p.done, func(e exchange) bool { return e.by == by && e.at.After(after) })
	})
}

// within waits until something is so of what is known of requests.
func (p *parted) within(d time.Duration, what string, is func() bool) {
	p.t.Helper()
	err := testbed.Poll(p.t.Context(), d, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !is() {
			return errors.New("it is not")
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("waited %v in vain for %s", d, what)
	}
}

// goOn waits until some hot requests were sent and answered.
func (p *parted) goOn() {
	p.t.Helper()
	from := time.Now()
	p.within(patience, "some requests", func() bool {
		answered := 0
		for _, e := range p.done {
			if e.at.After(from) && e.by != "" {
				answered++
			}
		}
		return answered >= some
	})
}

// over waits until no request is open that was on its way to one before a time. Those whose body
// is not read stay: nothing of them is on the way.
func (p *parted) over(one string, before time.Time) {
	p.t.Helper()
	p.within(patience, "the end of what was on its way", func() bool {
		for id, at := range p.open {
			if at.Before(before) && (isHot(id) || isLong(id) && slices.Contains(p.begun[id], one)) {
				return false
			}
		}
		return true
	})
}

// A way between nodes on which packets vanish costs the requests that are on it, and no other: not
// those of the gateway's other ways, nor those that come later, also if there is neither a daemon
// nor a control plane by then. They fail within a time, and none is begun twice.
func TestAPartitionCostsWhatIsOnTheWay(t *testing.T) {
	p := newParted(t)
	near := p.instances[0]
	stop := p.load()
	wait := p.long()

	p.stopDaemon()
	p.goOn()
	p.startDaemon()
	p.stopControlPlane()
	p.goOn()
	p.startControlPlane()
	p.update(p.state())
	p.goOn()

	near.link.Cut()
	cut := time.Now()
	p.goOn()
	p.stopControlPlane()
	p.stopDaemon()
	p.startDaemon()
	p.goOn()
	p.startControlPlane()
	p.update(p.state())
	p.over(near.name, cut.Add(seen))
	near.link.Heal()
	healed := time.Now()
	p.answered(near.name, healed)
	back := time.Since(healed)
	close(p.release)
	wait()
	stop()
	p.judge(cut, healed, back)
}

// judge says what is not as it should be.
func (p *parted) judge(cut, healed time.Time, back time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	near := p.instances[0].name
	var meanwhile, late, failed, onCutWay int
	var last time.Duration
	for _, e := range p.done {
		begun := p.begun[e.id]
		if len(begun) > 1 {
			p.t.Errorf("%s was begun by %v", e.id, begun)
		}
		took := e.ended.Sub(e.at)
		switch {
		case e.at.Before(cut):
			if e.by == near {
				onCutWay++
			}
		case e.at.Sub(cut) > seen && e.at.Before(healed):
			meanwhile++
			if took > hotLate {
				late++
			}
		}
		if isLong(e.id) && slices.Contains(begun, near) && e.ended.Sub(cut) > broken {
			p.t.Errorf("%s was on the other side, and was over %v after the cut", e.id, e.ended.Sub(cut))
		}
		if e.by != "" {
			continue
		}
		failed++
		last = max(last, e.ended.Sub(cut))
		onTheWay := e.at.Sub(cut) < seen && e.ended.After(cut) && (len(begun) == 0 || begun[0] == near)
		if !onTheWay {
			p.t.Errorf("%s, sent %v after the cut, begun by %v, failed %v after it: %s", e.id, e.at.Sub(cut), begun, e.ended.Sub(cut), e.why)
		}
	}
	p.t.Logf("of %d requests %d failed, the last %v after the cut; of %d later ones %d were late; %v after the link was whole its node had requests again", len(p.done), failed, last, meanwhile, late, back)
	if failed == 0 || onCutWay == 0 {
		p.t.Errorf("the way had %d requests before it was cut, and %d failed", onCutWay, failed)
	}
	if late*10 > meanwhile {
		p.t.Errorf("of %d requests that came later, %d had no answer for %v", meanwhile, late, hotLate)
	}
}

// hotLate is less than a request takes that waits for a connection first that does not come about,
// and more than others take on a busy machine.
const hotLate = upstream.MeshConnectTimeout - 100*time.Millisecond
