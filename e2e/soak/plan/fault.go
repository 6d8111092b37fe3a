package plan

import "math/rand/v2"

// Fault is what goes wrong with a request.
type Fault string

// The faults. Those of a store happen to one of its answers, and the next is a good one,
// unless they are for ever.
const (
	Fine Fault = "fine"

	ClientLeavesSending Fault = "client-leaves-sending"
	ClientLeavesReading Fault = "client-leaves-reading"

	StoreStalls        Fault = "store-stalls"
	StoreStallsForEver Fault = "store-stalls-for-ever"
	StoreResets        Fault = "store-resets"
	StoreTruncates     Fault = "store-truncates"
	StoreFails         Fault = "store-fails"   // 503
	StoreIsAway        Fault = "store-is-away" // each connection breaks
	StoreRefuses       Fault = "store-refuses" // 403
	StoreLacks         Fault = "store-lacks"   // 404
	ObjectChanges      Fault = "object-changes"
	// Shares is an object that other requests fetch at the same time, and which is stored
	// anew before this request.
	Shares Fault = "shares"

	// InstanceGone binds the request to an instance that is no more.
	InstanceGone Fault = "instance-gone"
	// NodeDies kills the cloud's daemon when the request is bound: at once, when the
	// function's node has the request, or when the function has it. It is the daemon of the
	// function, or the one that the request came to, or both, or an entry's consumer.
	NodeDies         Fault = "node-dies"
	PlacementRefused Fault = "placement-refused"

	FunctionBreaksOff Fault = "function-breaks-off"
	FunctionCloses    Fault = "function-closes"
	// FunctionRefuses an entry when it gets it first.
	FunctionRefuses Fault = "function-refuses"

	// Duplicate is a second request under the same id, to the same function or another.
	Duplicate   Fault = "duplicate"
	IDMalformed Fault = "id-malformed"
	// Foreign is a reference to what is not the function's: another bucket, the node's own
	// buffer in Redis, the daemon's own port, another scheme.
	Foreign Fault = "foreign"
	// Pries is a function that asks for what is not its own by its socket: another request's
	// input, and a call of what it may not call; and another sandbox that asks for the input
	// of this request.
	Pries      Fault = "pries"
	TooLarge   Fault = "too-large"
	BufferFull Fault = "buffer-full"
)

// The moments at which NodeDies strikes, by a case's Variant.
const (
	DiesBound = iota
	DiesParked
	DiesDelivered
	Moments
)

// Foreigners is how many kinds of Foreign there are.
const Foreigners = 5

// shares are how often each fault happens, in thousandths; the rest is fine.
var shares = []struct {
	fault Fault
	share int
}{
	{ClientLeavesSending, 100}, {ClientLeavesReading, 70},
	{StoreStalls, 5}, {StoreStallsForEver, 8}, {StoreResets, 60}, {StoreTruncates, 60}, {StoreFails, 30}, {StoreIsAway, 8},
	{StoreRefuses, 20}, {StoreLacks, 20}, {ObjectChanges, 50}, {Shares, 80},
	{InstanceGone, 15}, {NodeDies, 8}, {PlacementRefused, 15},
	{FunctionBreaksOff, 30}, {FunctionCloses, 20}, {FunctionRefuses, 10},
	{Pries, 30}, {Duplicate, 30}, {IDMalformed, 5}, {Foreign, 30}, {TooLarge, 15}, {BufferFull, 6},
}

func choose(r *rand.Rand) Fault {
	const all = 1000
	n := r.IntN(all)
	for _, s := range shares {
		if n < s.share {
			return s.fault
		}
		n -= s.share
	}
	return Fine
}

// needs is the input that a fault can happen to, empty if any will do.
func (f Fault) needs(r *rand.Rand) Input {
	switch f {
	case StoreStalls, StoreResets, StoreTruncates, ObjectChanges:
		return pick(r, S3, S3, Redis, HTTP, Stream)
	case StoreFails, StoreRefuses, StoreLacks:
		return pick(r, S3, S3, HTTP, Stream)
	case StoreIsAway:
		return pick(r, S3, HTTP, Redis)
	case StoreStallsForEver, Shares:
		return S3
	case Foreign:
		return pick(r, S3, Redis, HTTP)
	case TooLarge, BufferFull:
		return pick(r, S3, HTTP, Body)
	case NodeDies:
		return pick(r, S3, Body, None)
	}
	return ""
}

// befallsEntries tells whether a fault can happen to an entry of a stream, and passes: one is
// tried until its function, or its input, is to blame.
func (f Fault) befallsEntries() bool {
	switch f {
	case StoreResets, StoreTruncates, StoreFails, StoreRefuses, StoreLacks, ObjectChanges, Shares,
		InstanceGone, NodeDies, PlacementRefused, FunctionBreaksOff, FunctionCloses, FunctionRefuses, Foreign, TooLarge, Pries:
		return true
	}
	return false
}
