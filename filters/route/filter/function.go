package filter

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
	"github.com/headstart-mesh/headstart/filters/route"
)

const (
	// avoidFor is how long an endpoint is not named to which the proxy did not send what was
	// meant for it: at least, for a try costs little where it is gone, and at most. In between
	// it is avoidTimes as long as it took to find out: where packets vanish, a try waits for the
	// connect timeout.
	avoidFor, avoidMost, avoidTimes = time.Second, 6 * time.Second, 3
	// trial is how long the others wait for the one request that then tries it: longer than a
	// connect timeout.
	trial = 3 * time.Second
	// tries is how often a worker writes what it has to tell when others are faster. Then they
	// do not know of one request, until the next one.
	tries = 4
	// readEvery is after what time a worker reads what the others tell, even if the endpoints that
	// it picks have room. Within it each knows of an endpoint that another has found slow.
	readEvery = 100 * time.Millisecond
	// checkEvery is after what time it is looked again who has answered in an endpoint's place, of
	// an endpoint whose answers are as expected. To ask costs a tenth of all that the filter does.
	checkEvery = 10 * time.Millisecond
	// keyPrefix begins the names of what workers share. Its number is the version of what route.Table.Append
	// writes: while a gateway replaces its filters, those of two versions share data, as Istio's plugins all do.
	keyPrefix = "headstart.route/1/"
)

// function is what one worker knows of a function.
type function struct {
	cluster, key string
	line         string // of the expectations
	is           bool   // one, as the gateway has said of the cluster
	table        route.Table
	addresses    []string
	// avoided has until when an endpoint is, and tried those for which that is over and that
	// nobody has tried since.
	avoided map[string]time.Duration
	tried   map[string]bool
	// checked has when it was last seen that each of addresses has answered itself.
	checked []time.Duration
	// read is when the shared text was, 0: not since the expectations changed. cas is the
	// number that it had, or has by what was written since.
	read   time.Duration
	cas    uint32
	buffer []byte
}

func newFunction(cluster string) *function {
	return &function{cluster: cluster, key: keyPrefix + cluster, avoided: map[string]time.Duration{}, tried: map[string]bool{}}
}

func (f *function) set(line string, said filterapi.RouteFunction) {
	f.line = line
	f.addresses, f.checked, f.read = make([]string, len(said.Endpoints)), make([]time.Duration, len(said.Endpoints)), 0
	for i, e := range said.Endpoints {
		f.addresses[i] = e.Address.String()
	}
	f.table.Set(said.Endpoints)
	maps.DeleteFunc(f.tried, func(address string, _ bool) bool { return !slices.Contains(f.addresses, address) })
	f.eject()
}

// begin picks an endpoint, as an index of addresses, and tells the other workers. ok is false
// if there is none.
func (f *function) begin(now time.Duration) (sent route.Sent, i int, ok bool) {
	if len(f.avoided) > 0 {
		f.forgive(now)
	}
	random := rand.Uint64()
	i, ok = f.table.Pick(now, random)
	if !ok || f.read == 0 || !f.table.Roomy(i, now) || now-f.read > readEvery {
		if f.join(now) {
			i, ok = f.table.Pick(now, random)
		}
	}
	if !ok {
		return sent, i, false
	}
	if len(f.tried) > 0 && f.tried[f.addresses[i]] {
		f.avoid(f.addresses[i], now, trial)
	}
	sent = f.table.Begin(i, now)
	if f.table.News(sent) {
		f.tell(now)
	}
	return sent, i, true
}

func (f *function) over(sent route.Sent) {
	f.table.Over(sent)
	if f.table.News(sent) {
		f.tell(host.Clock())
	}
}

// join takes in what the workers know, and says whether that is something else than before.
// What cannot be read is as if there were nothing.
func (f *function) join(now time.Duration) bool {
	text, cas := host.GetShared(f.key)
	if cas != 0 && cas == f.cas && f.read != 0 && now-f.read <= readEvery {
		return false
	}
	f.table.Join(text, now)
	f.cas, f.read = cas, now
	return true
}

func (f *function) tell(now time.Duration) {
	if f.read == 0 {
		f.join(now)
	}
	for range tries {
		f.buffer = f.table.Append(f.buffer[:0], now)
		err := host.SetShared(f.key, f.buffer, f.cas)
		if err == nil {
			f.table.Told()
			// The proxy numbers all that it is told, one by one. So what has the next number is
			// this, or nothing: then it is read again.
			f.cas++
			return
		}
		if !errors.Is(err, host.ErrChanged) {
			host.LogWarning(fmt.Sprintf("route: %s: telling other workers: %v", f.cluster, err))
			return
		}
		f.join(now)
	}
}

// trusted says of an endpoint that it has lately answered itself what was meant for it.
func (f *function) trusted(i int, address string, now time.Duration) bool {
	return i < len(f.addresses) && f.addresses[i] == address && f.checked[i] != 0 && now-f.checked[i] < checkEvery
}

// trust notes that an endpoint has answered itself.
func (f *function) trust(i int, address string, now time.Duration) {
	if i < len(f.addresses) && f.addresses[i] == address {
		f.checked[i] = now
	}
	delete(f.tried, address)
	if _, avoided := f.avoided[address]; avoided {
		delete(f.avoided, address)
		f.eject()
	}
}

// avoid has an endpoint not named for so long.
func (f *function) avoid(address string, now, long time.Duration) {
	delete(f.tried, address)
	if len(f.avoided) < len(f.addresses) { // some may be gone
		f.avoided[address] = now + long
		f.eject()
	}
}

// missed is how long to avoid an endpoint that did not get its request, which was seen after a
// time.
func missed(after time.Duration) time.Duration {
	return min(max(avoidFor, avoidTimes*after), avoidMost)
}

func (f *function) forgive(now time.Duration) {
	before := len(f.avoided)
	for address, until := range f.avoided {
		if until < now {
			delete(f.avoided, address)
			f.tried[address] = true
		}
	}
	if len(f.avoided) < before {
		f.eject()
	}
}

func (f *function) eject() {
	f.table.Eject(func(i int) bool {
		_, avoided := f.avoided[f.addresses[i]]
		return avoided
	})
}
