package route

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// What a gateway's workers tell each other of a function's endpoints is one text that each
// reads before it picks, and writes after it has sent a request and when that is over, where
// that makes a difference: a generation, which is when it was begun, and a record for each
// endpoint of which there is something to say. Each worker knows which part of the requests
// in flight is its own.
const (
	generationBytes = 8
	// A record is the endpoint's id, the requests in flight, those of other gateways and when
	// they were heard of, how slow it is, when that was seen and when it was tried.
	recordBytes = 4 + 4 + 4 + 8 + 4 + 8 + 8
	// sharedMost is how many endpoints are told of that have no request.
	sharedMost = 512
	// sharedFor is how long it is told what was seen of an endpoint that has no request.
	sharedFor = 5 * time.Second
	// unspoken is by which part of an endpoint's workers what each of the gateway's own tells may
	// be wrong. So even as many of them as this have to have more in flight than they tell before
	// one request waits because of it; and of an endpoint with fewer workers all is told.
	unspoken = 16
	// generationFor is after what time counting begins anew. A worker that ends in the middle
	// of requests has them counted for ever, unless it is that one which begins anew when it
	// is back; this is for all else that nobody has thought of.
	generationFor = 10 * time.Minute
)

// idOf is what workers call an endpoint, which may have different lists of them for a moment.
func idOf(address netip.AddrPort) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(address.AppendTo(nil)) // never fails, see hash.Hash
	return h.Sum32()
}

// Join takes in what the workers know together, as it was written last: nil if nobody has.
func (t *Table) Join(text []byte, now time.Duration) {
	generation, records := split(text)
	if generation == 0 || now-generation > generationFor {
		t.began = false
	}
	if !t.began || generation != t.generation { // nothing that was told here is in it
		for _, i := range t.shared {
			t.endpoints[i].told = 0
		}
		if !t.began {
			// A worker's first text begins anew: it may have been here before, and have ended in
			// the middle of requests.
			generation, records = now, nil
		}
		t.generation = generation
	}
	for _, i := range t.shared {
		e := &t.endpoints[i]
		e.elsewhere, e.toldOthers, e.toldSlow = 0, 0, 1
	}
	for ; len(records) >= recordBytes; records = records[recordBytes:] {
		i, ok := t.ids[binary.LittleEndian.Uint32(records)]
		if !ok {
			continue
		}
		t.share(i)
		t.endpoints[i].join(records, now)
	}
}

// split refuses what is not a text of Join's, which then is none.
func split(text []byte) (generation time.Duration, records []byte) {
	if len(text) < generationBytes || (len(text)-generationBytes)%recordBytes != 0 {
		return 0, nil
	}
	return time.Duration(binary.LittleEndian.Uint64(text)), text[generationBytes:]
}

func (t *Table) share(i int) {
	if e := &t.endpoints[i]; !e.shared {
		e.shared = true
		t.shared = append(t.shared, i)
	}
}

// leave begins anew if of endpoints that are no longer there something was told: nobody
// would take it back.
func (t *Table) leave(next []filterapi.RouteEndpoint) {
	stay := make(map[netip.AddrPort]bool, len(next))
	for _, e := range next {
		stay[e.Address] = true
	}
	for i := range t.endpoints {
		if e := &t.endpoints[i]; e.told > 0 && !stay[e.Address] {
			t.began = false
		}
	}
}

// Roomy says of endpoint i that what other workers have done since the last Join makes no
// difference to a request: most of its workers are free.
func (t *Table) Roomy(i int, now time.Duration) bool {
	e := &t.endpoints[i]
	others, _ := e.othersNow(now)
	return e.slow <= slower && float64(e.sent+e.elsewhere)+others < e.room()
}

// News says whether other workers are to be told what has become of a request's endpoint.
func (t *Table) News(sent Sent) bool {
	if !t.began {
		return true
	}
	i, ok := t.find(sent)
	return ok && t.endpoints[i].news()
}

// room is how many requests may be in flight of which others have not heard.
func (e *endpoint) room() float64 { return math.Floor(e.workers / unspoken) }

func (e *endpoint) news() bool {
	hidden := math.Abs(float64(e.sent - e.told))
	return hidden > e.room() || hidden > 0 && e.sent == 0 || math.Abs(e.others-e.toldOthers) > e.room() || max(e.slow, e.toldSlow) > slower
}

// Append adds to b what the others are to join: what was joined last, and what has happened
// here since. Once it is written, Told says so; if another worker has been faster, its text is
// to be joined first.
func (t *Table) Append(b []byte, now time.Duration) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(t.generation))
	kept := t.shared[:0]
	for _, i := range t.shared {
		e := &t.endpoints[i]
		idle := e.sent+e.elsewhere == 0 && e.told == 0
		if idle && (len(kept) >= sharedMost || max(e.heard, e.slowAt)+sharedFor < now) {
			e.shared = false
			continue
		}
		kept = append(kept, i)
		b = e.append(b)
	}
	t.shared = kept
	return b
}

// Told says that what Append has returned is written.
func (t *Table) Told() {
	t.began = true
	for _, i := range t.shared {
		e := &t.endpoints[i]
		e.told, e.toldOthers, e.toldSlow = e.sent, e.others, e.slow
	}
}

func (e *endpoint) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, e.id)
	b = binary.LittleEndian.AppendUint32(b, uint32(min(e.sent+e.elsewhere, inFlightLimit)))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(e.others)))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.heard))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(e.slow)))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.slowAt))
	return binary.LittleEndian.AppendUint64(b, uint64(e.tried))
}

func (e *endpoint) join(record []byte, now time.Duration) {
	number := func(at int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(record[at:])))
	}
	since := func(at int) time.Duration {
		return min(time.Duration(binary.LittleEndian.Uint64(record[at:])), now)
	}
	inFlight := int(min(binary.LittleEndian.Uint32(record[4:]), inFlightLimit))
	e.elsewhere = max(0, inFlight-e.told)
	if at, others := since(12), number(8); others >= 0 && others <= inFlightLimit {
		if e.toldOthers = others; at > e.heard {
			e.hearOthers(at, others)
		}
	}
	if at, slow := since(24), number(20); slow >= 0 && slow <= slowLimit {
		if e.toldSlow = slow; at > e.slowAt {
			e.slow, e.slowAt = slow, at
		}
	}
	e.tried = max(e.tried, since(32))
}
