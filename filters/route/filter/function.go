package filter

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/route"
)

const (
	// avoidFor is how long an endpoint is not named to which the proxy did not send what was
	// meant for it. Each try costs nothing: the request goes by weight.
	avoidFor = time.Second
	// tries is how often a worker writes what it has to tell when others are faster. Then they
	// do not know of one request, until the next one.
	tries = 4
	// keyPrefix begins the names of what workers share.
	keyPrefix = "headstart.route/"
)

// function is what one worker knows of a function.
type function struct {
	cluster, key string
	line         string // of the configuration
	table        route.Table
	addresses    []string
	// avoided has until when an endpoint is.
	avoided map[string]time.Duration
	buffer  []byte
}

func newFunction(cluster string) *function {
	return &function{cluster: cluster, key: keyPrefix + cluster, avoided: map[string]time.Duration{}}
}

func (f *function) set(line string, said filterapi.RouteFunction) {
	f.line = line
	f.addresses = make([]string, len(said.Endpoints))
	list := make([]route.Endpoint, len(said.Endpoints))
	for i, e := range said.Endpoints {
		f.addresses[i] = e.Address.String()
		list[i] = route.Endpoint{Address: f.addresses[i], Weight: e.Weight, RTT: e.RTT, Service: e.Service, Workers: e.Workers, Others: e.Others}
	}
	f.table.Set(list)
	f.eject()
}

// begin picks an endpoint and tells the other workers. ok is false if there is none.
func (f *function) begin(now time.Duration) (sent route.Sent, to string, ok bool) {
	if len(f.avoided) > 0 {
		f.forgive(now)
	}
	cas := f.join(now)
	i, ok := f.table.Pick(now, rand.Uint64())
	if !ok {
		return sent, "", false
	}
	sent = f.table.Begin(i, now)
	f.tell(now, cas)
	return sent, f.addresses[i], true
}

func (f *function) over(sent route.Sent, now time.Duration) {
	cas := f.join(now)
	f.table.Over(sent)
	f.tell(now, cas)
}

// join takes in what the workers know. What cannot be read is as if there were nothing.
func (f *function) join(now time.Duration) (cas uint32) {
	text, cas, err := proxywasm.GetSharedData(f.key)
	if err != nil {
		text, cas = nil, 0
	}
	f.table.Join(text, now)
	return cas
}

func (f *function) tell(now time.Duration, cas uint32) {
	for range tries {
		f.buffer = f.table.Append(f.buffer[:0], now)
		err := proxywasm.SetSharedData(f.key, f.buffer, cas)
		if err == nil {
			f.table.Told()
			return
		}
		if !errors.Is(err, types.ErrorStatusCasMismatch) {
			proxywasm.LogWarnf("route: %s: telling other workers: %v", f.cluster, err)
			return
		}
		cas = f.join(now)
	}
}

// avoid has an endpoint not named for a while.
func (f *function) avoid(address string, now time.Duration) {
	if len(f.avoided) < len(f.addresses) { // some may be gone
		f.avoided[address] = now + avoidFor
		f.eject()
	}
}

func (f *function) forgive(now time.Duration) {
	before := len(f.avoided)
	for address, until := range f.avoided {
		if until < now {
			delete(f.avoided, address)
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
