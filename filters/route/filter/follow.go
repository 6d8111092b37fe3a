package filter

import (
	"fmt"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// pause is between an answer of the daemon's and the next question: what changes meanwhile comes with
	// one change. The numbers are of the last seconds; a tenth of one does not make them old.
	pause = 100 * time.Millisecond
	// retry is after what time a daemon that is away is asked again.
	retry = time.Second
	// patience is how long an answer may take: longer than the daemon holds it.
	patience = filterapi.ExpectationsHeld + 10*time.Second

	daemonAuthority = "headstart-node" // HTTP wants one; at a unix socket it names nothing
)

// follower keeps a worker's expectations as the node's daemon has them. It asks with the version that it
// has, and the daemon answers when that is not, or no more, its own.
type follower struct {
	// use takes expectations; what it refuses does not count.
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
		logError(fmt.Sprintf("route: the proxy has no clock, and weights alone decide: %v", err))
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
		text, err := proxywasm.GetHttpCallResponseBody(0, filterapi.MaxConfigBytes+1) // longer ones are refused
		if err == nil {
			err = f.use(text)
		}
		if err != nil {
			logError(fmt.Sprintf("route: the daemon's expectations do not count: %v", err))
		}
		f.version = version // once is enough, also of what is wrong
	case "304": // nothing is new
	default:
		f.failed(fmt.Sprintf("status %q", status))
		return
	}
	f.away = false
	f.again(pause)
}

// failed keeps what is known: without the daemon, requests go by that.
func (f *follower) failed(why string) {
	if !f.away {
		logWarning("route: the daemon says nothing to expect: " + why)
	}
	f.away = true
	f.again(retry)
}
