package probe

import (
	"bytes"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

func (t *Traffic) Following() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.of)
}

func ReadAnswer(b []byte) (coordinate.Point, error) { return readAnswer(bytes.NewReader(b)) }

func Answer(p coordinate.Point) ([]byte, error) {
	var b bytes.Buffer
	err := writeAnswer(&b, p)
	return b.Bytes(), err
}

// Between is the round trip between two looks: smoothed, bytes acknowledged, and segments
// repeated at each.
func Between(before, after [3]uint64) (time.Duration, bool) {
	seen := func(s [3]uint64) tcp {
		return tcp{smoothed: time.Duration(s[0]) * time.Microsecond, acknowledged: s[1], repeated: uint32(s[2])}
	}
	return between(seen(before), seen(after))
}

// Measured is what is known of one peer.
type Measured struct{ RTT, Age time.Duration }

// RTT is the way to a peer; ok is false if nothing fresh is known of it.
func (p *Plan) RTT(peer string, now time.Time) (m Measured, ok bool) {
	for _, to := range p.Measured(now) {
		if to.GetNode() == peer {
			return Measured{RTT: time.Duration(to.GetRttUs()) * time.Microsecond, Age: to.GetAge().AsDuration()}, true
		}
	}
	return Measured{}, false
}
