// Package trigger has functions called for the entries of streams: what Truffle calls a
// Listener, beyond HTTP. An entry is delivered at least once. It is made a CloudEvent and
// sent through the node's own gateway, so that cold start, placement, input and trace are
// those of any request.
//
// The package decides what becomes of an entry; a Stream, whose adapters lie one level
// below and pass one suite (triggertest), keeps it.
package trigger

import (
	"context"
	"time"
)

// TakeMost is how much Take may return at a time, in bytes. An entry that alone is more comes
// without its fields: entries are held in memory as a whole, and in Redis one may have gigabytes.
const TakeMost = 16 << 20

// Entry is one entry of a stream.
type Entry struct {
	// ID is the stream's own: milliseconds since 1970, a hyphen, a number.
	ID     string
	Fields map[string]string
	// Tries is how often it was taken, by whomever, this time included.
	Tries int
	// TooLarge: it is more than TakeMost, and Fields is empty.
	TooLarge bool
}

// Size is how much the entry's fields are, in bytes.
func (e Entry) Size() (n int64) {
	for name, value := range e.Fields {
		n += int64(len(name) + len(value))
	}
	return n
}

// Verdict is what becomes of an entry after a delivery.
type Verdict int

// The verdicts.
const (
	// Done: the function has answered; the entry is acknowledged.
	Done Verdict = iota + 1
	// Again: it is kept, and tried once more.
	Again
	// Dead: it is put among the dead letters, and acknowledged.
	Dead
	// Return: it is given back, as if it had not been taken: anybody may take it at once.
	Return
)

// Fate is a verdict with what the stream needs to carry it out.
type Fate struct {
	Verdict Verdict
	// Entry is the entry. For Again and Return, Tries is what its count is to be.
	Entry Entry
	// Rested is how long ago this consumer took the entry, of Again and Return: if
	// anybody took it since, it is that one's.
	Rested time.Duration
	// Idle is, of Return, after how long entries change hands.
	Idle time.Duration
	// Reason and Detail say why the entry is Dead: a problem's title and words.
	Reason, Detail string
}

// Backlog is what is still to be done.
type Backlog struct {
	// Lag is how many entries nobody has taken yet.
	Lag int64
	// Pending is how many were taken and are not acknowledged.
	Pending int64
}

// Stream is one consumer's part in a stream's group of consumers. Its methods may be called
// side by side, but Leave, which is the last.
type Stream interface {
	// Take returns up to most entries, of TakeMost bytes together: those that have rested for idle in another's hands,
	// which is gone then, and new ones. It waits about a second for them, and makes stream
	// and group if there are none. What it has returned it returns again only when that is
	// settled.
	Take(ctx context.Context, most int, idle time.Duration) ([]Entry, error)
	// Settle carries out a fate. mine is false when the entry was another's by now; only
	// Again and Return look.
	Settle(ctx context.Context, f Fate) (mine bool, err error)
	// Backlog is the whole group's.
	Backlog(ctx context.Context) (Backlog, error)
	// Leave takes the consumer out of the group, if it has no entries left.
	Leave(ctx context.Context) error
}
