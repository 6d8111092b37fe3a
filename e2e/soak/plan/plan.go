// Package plan is what a soak does: which requests it sends, and what goes wrong with each. A
// plan is a function of its seed and of nothing else, so that one that has found something
// can be run again.
package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"time"
)

// Input is where a request's input is.
type Input string

// The inputs. Stream is a server of HTTP without ranges and without a length.
const (
	None   Input = "none"
	S3     Input = "s3"
	Redis  Input = "redis"
	HTTP   Input = "http"
	Stream Input = "stream"
	Body   Input = "body"
)

// Stored tells whether the input is in a store.
func (i Input) Stored() bool { return i != None && i != Body }

// Way is how a request comes to a node.
type Way string

// The ways.
const (
	// Gateway: a client sends it to a node's gateway.
	Gateway Way = "gateway"
	// Call: a function sends it by its sandbox's socket.
	Call Way = "call"
	// Entry: it is an entry of a stream; either node may consume it.
	Entry Way = "entry"
)

// Node is one of the two.
type Node string

// The nodes. Of these the cloud is the one that dies.
const (
	Edge  Node = "edge"
	Cloud Node = "cloud"
)

// Reading is how a function reads its input by its socket, beside its body.
type Reading string

// The readings.
const (
	Unread Reading = "unread"
	Whole  Reading = "whole"
	Ranges Reading = "ranges" // in parts, and what no range may have
)

const (
	// inputLimit is the largest input of a case, in bytes: three parts of a store that is
	// read by ranges of 2 MiB.
	inputLimit = 6 << 20
	// answerLimit is the largest answer, in bytes: more than what all buffers of sockets
	// on the way take.
	answerLimit = 1 << 20
	// startLimit bounds an instance's start.
	startLimit = 60 * time.Millisecond
	// TooMuch is more than a function takes, in bytes.
	TooMuch = 9 << 20
	// Flood is more than a buffer takes, in bytes.
	Flood = 56 << 20
	// entryLimit is the largest data of an entry, in bytes: it is no place for more.
	entryLimit = 64 << 10
	// Shared is how many objects the cases of the fault Shares have together.
	Shared = 4
)

// Case is one request, and what goes wrong with it.
type Case struct {
	Number int
	// ID is the request's, 32 hexadecimal digits.
	ID    string
	Way   Way
	Input Input
	// Size is the input's, in bytes.
	Size int64
	// Chunked says that a body is sent without its length.
	Chunked bool
	// OwnBody says that a request with a stored input has a body as well.
	OwnBody bool
	// Answer is how many bytes the function answers beside its report.
	Answer int64
	// From is the node that the request comes to, unless it is an entry, and On the one that
	// its function is on.
	From, On Node
	// Start is how long the instance takes to start; 0: it is ready before the request.
	Start time.Duration
	// Hidden says that the instance's sandbox sees no inputs as files, and has no socket.
	Hidden bool
	// Socket is how the function reads its input there.
	Socket Reading
	// Paced says that the second half of a body is only sent when the function has read the
	// first one by its socket.
	Paced bool
	// Hinted says that the gateway's filter sends a hint ahead of the request.
	Hinted bool
	// HTTP2 is what the gateway speaks.
	HTTP2 bool

	Fault Fault
	// At is the byte where it happens, Try which answer of the store it happens to, from 1
	// on, and Variant which kind of it.
	At      int64
	Try     int
	Variant int

	seed uint64
}

// Event is what happens to all requests that are under way.
type Event string

// The events.
const (
	Nothing       Event = ""
	RedisRestarts Event = "redis-restarts"
)

// eventEvery is how many requests there are from one event to the next.
const eventEvery = 400

// Plan is the plan of a seed.
type Plan struct{ Seed uint64 }

// Event is what happens before a case.
func (p Plan) Event(number int) Event {
	if number%eventEvery == eventEvery/2 {
		return RedisRestarts
	}
	return Nothing
}

// lineEvery is how many exchanges with the streams' server there are for one that breaks off,
// and lineLimit the last byte at which it does: most answers are short.
const (
	lineEvery = 25
	lineLimit = 64
)

// Line tells whether the answer to an exchange of the nodes with the streams' server breaks
// off, and at which byte. Which exchange it is depends on how the nodes work.
func (p Plan) Line(exchange int) (at int64, breaks bool) {
	r := rand.New(rand.NewPCG(^p.Seed, uint64(exchange)))
	return r.Int64N(lineLimit), r.IntN(lineEvery) == 0
}

// Case returns a case by its number, from 0 on.
func (p Plan) Case(number int) Case {
	r := rand.New(rand.NewPCG(p.Seed, uint64(number)))
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	c := Case{Number: number, ID: hex.EncodeToString(id[:]), seed: p.Seed,
		Input: pick(r, S3, S3, S3, Redis, Redis, HTTP, Stream, Body, Body, Body, None), Size: size(r, inputLimit), Answer: size(r, answerLimit),
		Way: pick(r, Gateway, Gateway, Gateway, Gateway, Gateway, Gateway, Gateway, Gateway, Gateway, Call, Call, Entry), From: pick(r, Edge, Edge, Edge, Cloud), On: pick(r, Edge, Cloud),
		Socket: pick(r, Unread, Unread, Whole, Ranges), Paced: r.IntN(2) == 0,
		Chunked: r.IntN(2) == 0, OwnBody: r.IntN(8) == 0, Hidden: r.IntN(6) == 0, Hinted: r.IntN(2) == 0, HTTP2: r.IntN(4) == 0}
	if r.IntN(3) > 0 {
		c.Start = time.Duration(1 + r.Int64N(int64(startLimit)))
	}
	c.Fault = choose(r)
	c.Variant = r.IntN(1 << 16)
	c.Try = 1 + r.IntN(2)
	c.fit(r)
	return c
}

// fit makes a case one to which its fault can happen.
func (c *Case) fit(r *rand.Rand) {
	c.way(r)
	if i := c.Fault.needs(r); i != "" {
		c.Input = i
	}
	if c.Way == Entry {
		c.enqueue(r)
	}
	c.OwnBody = c.OwnBody && c.Input.Stored()
	if c.Input == None {
		c.Size = 0
	}
	switch c.Fault {
	case ClientLeavesSending:
		c.At = r.Int64N(c.Size + headSize)
		if c.Input != Body {
			c.At = r.Int64N(headSize)
		}
		c.HTTP2 = c.HTTP2 && c.Input == Body
	case ClientLeavesReading, FunctionBreaksOff:
		c.Answer = 1 + r.Int64N(answerLimit)
		c.At = r.Int64N(c.Answer)
	case StoreStalls, StoreResets, StoreTruncates, ObjectChanges:
		c.Size = max(c.Size, 1)
		c.At = r.Int64N(c.Size)
		if c.Try > 1 && c.Input == S3 { // there is a second answer
			c.Size = inputLimit/2 + r.Int64N(inputLimit/2)
			c.At = r.Int64N(inputLimit / 8)
		}
	case StoreStallsForEver, StoreIsAway:
		c.Size = max(c.Size, 1)
	case NodeDies:
		c.HTTP2 = false
		c.Start = max(c.Start, time.Millisecond)
	case Duplicate:
		c.Start = 0
	case Shares:
		c.Size = max(c.Size, 1)
	case TooLarge:
		c.Size = TooMuch
	case BufferFull:
		c.Size = Flood
	case Pries:
		c.Hidden = false
	}
	c.Hinted = c.Hinted && c.Input.Stored() && c.Way == Gateway && c.From == Edge
	if c.Hidden || c.Input == None || c.Input == Body && c.Size == 0 || c.Fault == TooLarge || c.Fault == BufferFull {
		c.Socket = Unread
	}
	// One that leaves while it sends does not wait for what comes of it; that its daemon has
	// closed the connection a client of HTTP/2 in Go sees only with the next byte of the body.
	c.Paced = c.Paced && c.Socket != Unread && c.Input == Body && c.Way != Entry && c.Size > 1 && !c.HTTP2 &&
		c.Fault != ClientLeavesSending
}

// way makes the case come on a way on which its fault can happen, to nodes that it can happen to.
func (c *Case) way(r *rand.Rand) {
	switch c.Fault {
	case Duplicate, IDMalformed: // the daemon makes the ids of others
		c.Way, c.From = Gateway, Edge
	case FunctionRefuses:
		c.Way = Entry
	case NodeDies:
		c.Way = pick(r, Gateway, Gateway, Call, Entry)
		way := pick(r, [2]Node{Edge, Cloud}, [2]Node{Edge, Cloud}, [2]Node{Cloud, Edge}, [2]Node{Cloud, Cloud})
		c.From, c.On = way[0], way[1]
	}
	if c.Way == Entry && !c.Fault.befallsEntries() {
		c.Fault = Fine
	}
}

// enqueue makes the case one of an entry, which names an object or is the input itself.
func (c *Case) enqueue(r *rand.Rand) {
	stored := c.Fault.needs(r) != ""
	c.Input = pick(r, S3, Body)
	if stored {
		c.Input = S3
	}
	if c.Input == Body {
		c.Size = size(r, entryLimit)
	}
	if c.Fault == NodeDies { // whichever node consumes it
		c.On = Cloud
	}
	c.From, c.HTTP2, c.Chunked = "", false, false
}

// headSize is at least what the head of a request takes, in bytes.
const headSize = 160

// size is often small, seldom large, and sometimes 0.
func size(r *rand.Rand, limit float64) int64 {
	if r.IntN(20) == 0 {
		return 0
	}
	return int64(math.Exp(r.Float64() * math.Log(limit)))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Content is a version of the case's input, from 1 on. The second may be shorter.
func (c Case) Content(version int) []byte {
	size := c.Size
	if version == 2 && c.Variant%2 == 0 {
		size /= 2
	}
	return c.bytes(uint64(version), size)
}

// Filler is what the function answers beside its report.
func (c Case) Filler() []byte { return c.bytes(0, c.Answer) }

// Own is the body of a request whose input is stored.
func (c Case) Own() []byte { return c.bytes(math.MaxUint64, 1000) }

// bytes look like nothing else: no two cases and no two versions have the same.
func (c Case) bytes(which uint64, n int64) []byte {
	var seed [32]byte
	for i, v := range []uint64{c.seed, uint64(c.Number), which} {
		binary.LittleEndian.PutUint64(seed[8*i:], v)
	}
	var b bytes.Buffer
	b.Grow(int(n))
	r := rand.NewChaCha8(seed)
	for int64(b.Len()) < n {
		b.Write(binary.LittleEndian.AppendUint64(b.AvailableBuffer(), r.Uint64()))
	}
	b.Truncate(int(n))
	return b.Bytes()
}
