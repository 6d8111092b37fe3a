package filter

import (
	"fmt"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/host"
)

const (
	// pause is between an answer of the daemon's and the next question, at least: what changes meanwhile comes
	// with one change. The numbers are of the last seconds; a tenth of one does not make them old. It is also
	// pauseTimes as long as the worker took for the answer, which it takes from requests: a daemon that always
	// says something new takes an eleventh of it.
	pause, pauseTimes = 100 * time.Millisecond, 10
	// retry is after what time a daemon is asked again that is away, or whose expectations are rejected.
	retry = time.Second
	// patience is how long an answer may take: longer than the daemon holds it.
	patience = filterapi.ExpectationsHeld + 10*time.Second

	daemonAuthority = "headstart-node" // HTTP wants one; at a unix socket it names nothing

	// nothing is what a daemon sends that expects nothing of any function.
	nothing = filterapi.Version + "\n"
)

// follower keeps a worker's expectations as the node's daemon has them. It asks with the version that it
// has, and the daemon answers when that is not, or no more, its own.
type follower struct {
	// use takes expectations. If it refuses them, there are none.
	use     func(text []byte) error
	cluster string // of the daemon
	version string
	asking  bool
	over    bool // the proxy has done with the plugin
	away    bool // as has been logged
}

// dispatcher sends a request of the filter's own, as proxywasm.DispatchHttpCall does.
type dispatcher func(cluster string, headers [][2]string, body []byte, trailers [][2]string, timeoutMillis uint32, answered func(headers, bodySize, trailers int)) (uint32, error)

// again has the proxy tick after a time. The proxy does not tick while it only tries a configuration.
func (f *follower) again(after time.Duration) {
	if err := proxywasm.SetTickPeriodMilliSeconds(uint32(after.Milliseconds())); err != nil {
		host.LogError(fmt.Sprintf("route: the proxy has no clock, and weights alone decide: %v", err))
	}
}

// ask is for each tick.
func (f *follower) ask(dispatch dispatcher) {
	if f.asking || f.over {
		return
	}
	_, err := dispatch(f.cluster, [][2]string{
		{":method", "GET"}, {":path", filterapi.ExpectationsPath}, {":authority", daemonAuthority},
		{filterapi.HeaderKnown, f.version},
	}, nil, nil, uint32(patience.Milliseconds()), f.answered)
	if err != nil {
		f.failed(err.Error())
		return
	}
	f.asking = true
	f.again(0)
}

func (f *follower) answered(headers, _, _ int) {
	f.asking = false
	if f.over {
		return
	}
	status, version := "", ""
	if headers > 0 { // else there is no answer
		all, err := proxywasm.GetHttpCallResponseHeaders()
		if err != nil {
			f.failed(err.Error())
			return
		}
		for _, h := range all {
			switch h[0] {
			case statusHeader:
				status = h[1]
			case filterapi.HeaderVersion:
				version = h[1]
			}
		}
	}
	switch status {
	case "200":
		// Longer texts are refused, and so is none.
		text, _ := proxywasm.GetHttpCallResponseBody(0, filterapi.MaxConfigBytes+1)
		f.take(text, version)
	case "304": // nothing is new
		f.away = false
		f.again(pause)
	case "", "503", "504": // no answer, or Envoy's own
		f.failed(fmt.Sprintf("status %q", status))
	default: // a daemon of another version: the worker does not hear from it which endpoints are gone
		f.version = ""
		_ = f.use([]byte(nothing)) // which nobody refuses
		f.failed(fmt.Sprintf("status %q, weights decide", status))
	}
}

// take uses a text. A rejected one has its version too: the worker does not ask for it again.
func (f *follower) take(text []byte, version string) {
	f.version = version
	began := host.Clock()
	if err := f.use(text); err != nil {
		f.failed(fmt.Sprintf("rejected, weights decide: %v", err))
		return
	}
	f.away = false
	f.again(max(pause, pauseTimes*(host.Clock()-began)))
}

// failed has the daemon asked again. Until then requests go by what is known.
func (f *follower) failed(why string) {
	if !f.away {
		host.LogWarning("route: the daemon sends no expectations: " + why)
	}
	f.away = true
	f.again(retry)
}
