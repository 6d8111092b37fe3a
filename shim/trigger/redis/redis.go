// Package redis has streams of Redis (since 7.0): groups of consumers, as in
// https://redis.io/docs/latest/develop/data-types/streams/#consumer-groups.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/trigger"
)

const (
	// groupPrefix begins the group of a function, so that several functions may each have
	// all entries of one stream.
	groupPrefix = "headstart:"
	// deadSuffix ends the key of a stream's dead letters.
	deadSuffix = ":dead"
	// deadMost is about how many dead letters are kept: whoever can add to the stream could
	// fill the server by them.
	deadMost = 10_000
	// returned is the consumer that has the entries which others gave back, so that those
	// can leave.
	returned = "returned"
	// block is how long a read waits for an entry. It is also how long a consumer that is
	// to end may have to wait for its read.
	block = time.Second
	// sweepMost is the longest between two looks for entries whose consumer is gone.
	sweepMost = 30 * time.Second
	// pendingMost is more than a consumer has in hand.
	pendingMost = 1000
	// lingering is how long a consumer that is gone may still be given entries: a read of it
	// waits at the server for block, and the network may have kept it for a while.
	lingering = 10 * time.Second
	// consumerAge is how long a consumer without entries has said nothing before it is
	// removed: its process was killed, else it would have done so itself.
	consumerAge = 24 * time.Hour
)

// Fields of a dead letter beside those of the entry. They replace fields of such names.
const (
	fieldID       = "headstart-id"
	fieldFunction = "headstart-function"
	fieldTries    = "headstart-tries"
	fieldReason   = "headstart-reason"
	fieldDetail   = "headstart-detail"
)

// Config names a consumer's part in a stream.
type Config struct {
	// Client returns a client of the server. It is asked for each command: the store may be
	// changed meanwhile.
	Client func() (*redis.Client, error)
	// Key is the stream's.
	Key string
	// Function is namespace/name; its group is the consumer's.
	Function string
	// Consumer is a name that no other process has.
	Consumer string
	// Gone tells whether a consumer of that name is gone for sure, so that what it has need
	// not rest until it must be. nil: of none it is known.
	Gone func(consumer string) bool
}

// Stream implements trigger.Stream.
type Stream struct {
	Config
	group string

	// Of Take, which is not called side by side with itself.
	swept   time.Time
	cursor  string // where the sweep goes on; empty: none is under way
	suspect bool   // an answer was lost, and with it perhaps entries
	// leftovers are the consumers that were gone when this one looked first, and are still
	// there; nil before. One that comes later is not gone, whatever its name.
	leftovers map[string]bool

	mu   sync.Mutex
	held map[string]bool // ids of entries that were taken and not settled
}

// New returns a stream; it does not talk to the server yet.
func New(c Config) *Stream {
	return &Stream{Config: c, group: groupPrefix + c.Function, held: map[string]bool{}}
}

// Take implements trigger.Stream.
func (s *Stream) Take(ctx context.Context, most int, idle time.Duration) ([]trigger.Entry, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	entries, err := s.take(ctx, client, most, idle)
	if errors.Is(err, errTooMuch) { // they are this consumer's by now, and come one by one
		s.suspect = true
		entries, err = s.orphan(ctx, client)
	}
	if redis.HasErrorPrefix(err, "NOGROUP") {
		// From the beginning: entries of before the group, or of before the server lost it,
		// are not lost to the function.
		err = client.XGroupCreateMkStream(ctx, s.Key, s.group, "0").Err()
		if redis.HasErrorPrefix(err, "BUSYGROUP") { // another node was first
			err = nil
		}
	}
	if err != nil {
		// The client asks nothing for a caller that has gone, and waits for the answer to what it asked
		// before: of a read that a consumer's end came before, nothing waits at the server.
		s.suspect = s.suspect || !errors.Is(err, context.Canceled)
		return nil, fmt.Errorf("reading stream %s: %w", s.Key, err)
	}
	return s.hold(entries), nil
}

// hold notes what is taken, and leaves out what was before.
func (s *Stream) hold(entries []trigger.Entry) (fresh []trigger.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if !s.held[e.ID] {
			s.held[e.ID] = true
			fresh = append(fresh, e)
		}
	}
	return fresh
}

func (s *Stream) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[id]
}

func (s *Stream) letGo(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, id)
}

func (s *Stream) take(ctx context.Context, client *redis.Client, most int, idle time.Duration) ([]trigger.Entry, error) {
	if s.suspect {
		if entries, err := s.orphan(ctx, client); err != nil || len(entries) > 0 {
			return entries, err
		}
		s.suspect = false
	}
	if s.cursor != "" || time.Since(s.swept) > min(idle/4, sweepMost) {
		if entries, err := s.sweep(ctx, client, most, idle); err != nil || len(entries) > 0 {
			return entries, err
		}
	}
	read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: s.group, Consumer: s.Consumer,
		Streams: []string{s.Key, ">"}, Count: int64(most), Block: block}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []trigger.Entry
	for _, of := range read {
		for _, m := range of.Messages {
			entries = append(entries, entry(m, 1))
		}
	}
	return entries, nil
}

// sweep takes over entries whose consumer is gone. One call looks at a part of them.
func (s *Stream) sweep(ctx context.Context, client *redis.Client, most int, idle time.Duration) ([]trigger.Entry, error) {
	if s.cursor == "" {
		if err := s.tidy(ctx, client, idle); err != nil {
			return nil, err
		}
	}
	start := s.cursor
	if start == "" {
		start = "0-0"
	}
	messages, next, err := client.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: s.Key, Group: s.group, Consumer: s.Consumer,
		MinIdle: idle, Start: start, Count: int64(most)}).Result()
	if err != nil {
		return nil, err
	}
	if s.cursor = next; next == "0-0" {
		s.cursor, s.swept = "", time.Now()
	}
	if len(messages) == 0 {
		return nil, nil
	}
	// The answer does not say how often each was delivered.
	pipe := client.Pipeline()
	pending := make([]*redis.XPendingExtCmd, len(messages))
	for i, m := range messages {
		pending[i] = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: s.group, Start: m.ID, End: m.ID, Count: 1, Consumer: s.Consumer})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err // they are this consumer's, and swept up again once they have rested
	}
	var entries []trigger.Entry
	for i, m := range messages {
		if p := pending[i].Val(); len(p) == 1 {
			entries = append(entries, entry(m, int(p[0].RetryCount)))
		}
	}
	return entries, nil
}

// orphan is an entry that the server has given to this consumer with an answer that never
// came, none if there is none. Without this it would rest as that of a consumer that is gone.
// It is one at a time: what did not come may have been too much for the time of an answer.
func (s *Stream) orphan(ctx context.Context, client *redis.Client) ([]trigger.Entry, error) {
	pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: s.group, Start: "-", End: "+", Count: pendingMost, Consumer: s.Consumer}).Result()
	if err != nil {
		return nil, err
	}
	for _, p := range pending {
		if s.has(p.ID) {
			continue
		}
		// With its count as it is: the time that it did not come is none, also if that happens again now.
		claim := redis.NewXMessageSliceCmd(ctx, "XCLAIM", s.Key, s.group, s.Consumer, 0, p.ID, "RETRYCOUNT", p.RetryCount)
		_ = client.Process(ctx, claim) // which is its error, too
		messages, err := claim.Result()
		if errors.Is(err, errTooMuch) {
			return []trigger.Entry{{ID: p.ID, Tries: int(p.RetryCount), TooLarge: true}}, nil
		}
		if err != nil {
			return nil, err
		}
		if len(messages) > 0 { // else it was removed from the stream
			return []trigger.Entry{entry(messages[0], int(p.RetryCount))}, nil
		}
	}
	return nil, nil
}

// tidy gives back what consumers have that are gone, and removes those that were killed and
// whose entries others have. A consumer takes with it what it has by then (XGROUP DELCONSUMER),
// which nobody would ever see: none is removed that may just be given something.
func (s *Stream) tidy(ctx context.Context, client *redis.Client, idle time.Duration) error {
	first := s.leftovers == nil
	if !first && len(s.leftovers) == 0 {
		return nil
	}
	all, err := client.XInfoConsumers(ctx, s.Key, s.group).Result()
	if redis.HasErrorPrefix(err, "no such key") || redis.HasErrorPrefix(err, "NOGROUP") {
		s.leftovers = map[string]bool{}
		return nil
	}
	if err != nil {
		return err
	}
	if first {
		s.leftovers = map[string]bool{}
		for _, c := range all {
			if c.Name != s.Consumer && c.Name != returned && (c.Idle > consumerAge || s.Gone != nil && s.Gone(c.Name)) {
				s.leftovers[c.Name] = true
			}
		}
	}
	for _, c := range all {
		switch {
		case !s.leftovers[c.Name]:
		case c.Pending > 0 && s.Gone != nil && s.Gone(c.Name):
			if err := s.giveBack(ctx, client, c.Name, idle); err != nil {
				return err
			}
		case c.Pending == 0 && c.Idle > lingering:
			if err := client.XGroupDelConsumer(ctx, s.Key, s.group, c.Name).Err(); err != nil {
				return err
			}
			delete(s.leftovers, c.Name)
		}
	}
	return nil
}

// giveBack has the entries of a consumer change hands with the next sweep.
func (s *Stream) giveBack(ctx context.Context, client *redis.Client, consumer string, idle time.Duration) error {
	for {
		pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: s.group, Start: "-", End: "+", Count: pendingMost, Consumer: consumer}).Result()
		if err != nil || len(pending) == 0 {
			return err
		}
		args := []any{"XCLAIM", s.Key, s.group, returned, 0}
		for _, p := range pending {
			args = append(args, p.ID)
		}
		if err := client.Do(ctx, append(args, "IDLE", idle.Milliseconds(), "JUSTID")...).Err(); err != nil {
			return err
		}
	}
}

func entry(m redis.XMessage, tries int) trigger.Entry {
	fields := make(map[string]string, len(m.Values))
	for name, value := range m.Values {
		fields[name], _ = value.(string) // the client makes no others
	}
	return trigger.Entry{ID: m.ID, Fields: fields, Tries: tries}
}

// Settle implements trigger.Stream.
func (s *Stream) Settle(ctx context.Context, f trigger.Fate) (mine bool, err error) {
	client, err := s.Client()
	if err != nil {
		return false, err
	}
	switch f.Verdict {
	case trigger.Done:
		mine, err = true, client.XAck(ctx, s.Key, s.group, f.Entry.ID).Err()
	case trigger.Dead:
		mine, err = true, s.bury(ctx, client, f)
	case trigger.Again:
		mine, err = s.claim(ctx, client, f, s.Consumer)
		if err == nil && !mine { // or it was claimed already, and the answer was lost
			mine, err = s.owns(ctx, client, f.Entry.ID)
		}
	case trigger.Return:
		mine, err = s.claim(ctx, client, f, returned, "IDLE", f.Idle.Milliseconds())
	}
	if redis.HasErrorPrefix(err, "NOGROUP") { // whoever makes the group anew, takes it anew
		mine, err = false, nil
	}
	if err == nil && (!mine || f.Verdict != trigger.Again) {
		s.letGo(f.Entry.ID)
	}
	if err != nil {
		return false, fmt.Errorf("settling entry %s of stream %s: %w", f.Entry.ID, s.Key, err)
	}
	return mine, nil
}

// bury moves an entry to the dead letters, in one transaction. One that is acknowledged is
// there already: the transaction's answer was lost, and it is tried again.
func (s *Stream) bury(ctx context.Context, client *redis.Client, f trigger.Fate) error {
	pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: s.group, Start: f.Entry.ID, End: f.Entry.ID, Count: 1}).Result()
	if err != nil || len(pending) == 0 {
		return err
	}
	// A transaction takes nothing back: beside something that is no stream, the letter would
	// be refused, and its entry acknowledged all the same.
	letters := s.Key + deadSuffix
	if err := client.XInfoGroups(ctx, letters).Err(); err != nil && !redis.HasErrorPrefix(err, "no such key") {
		return err
	}
	letter := make(map[string]any, len(f.Entry.Fields)+5)
	for name, value := range f.Entry.Fields {
		letter[name] = value
	}
	letter[fieldID], letter[fieldFunction] = f.Entry.ID, s.Function
	letter[fieldTries], letter[fieldReason], letter[fieldDetail] = strconv.Itoa(f.Entry.Tries), f.Reason, f.Detail
	_, err = client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.XAdd(ctx, &redis.XAddArgs{Stream: letters, MaxLen: deadMost, Approx: true, Values: letter})
		tx.XAck(ctx, s.Key, s.group, f.Entry.ID)
		return nil
	})
	return err
}

// claim gives an entry to a consumer, if nobody took it since this one did: then it has
// rested for as long as this one has it. A tenth is for clocks that differ.
func (s *Stream) claim(ctx context.Context, client *redis.Client, f trigger.Fate, consumer string, options ...any) (mine bool, err error) {
	args := append([]any{"XCLAIM", s.Key, s.group, consumer, (f.Rested * 9 / 10).Milliseconds(), f.Entry.ID}, options...)
	args = append(args, "RETRYCOUNT", f.Entry.Tries, "JUSTID")
	claimed, err := client.Do(ctx, args...).StringSlice()
	return len(claimed) == 1, err
}

// owns tells whether the server has an entry as this consumer's: nobody else gives it one.
func (s *Stream) owns(ctx context.Context, client *redis.Client, id string) (bool, error) {
	pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: s.group, Start: id, End: id, Count: 1, Consumer: s.Consumer}).Result()
	return len(pending) == 1, err
}

// Backlog implements trigger.Stream.
func (s *Stream) Backlog(ctx context.Context) (trigger.Backlog, error) {
	client, err := s.Client()
	if err != nil {
		return trigger.Backlog{}, err
	}
	groups, err := client.XInfoGroups(ctx, s.Key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return trigger.Backlog{}, nil
	}
	if err != nil {
		return trigger.Backlog{}, fmt.Errorf("asking for the backlog of stream %s: %w", s.Key, err)
	}
	for _, g := range groups {
		if g.Name == s.group {
			return trigger.Backlog{Lag: g.Lag, Pending: g.Pending}, nil
		}
	}
	return trigger.Backlog{}, nil
}

// Leave implements trigger.Stream. A consumer that has entries, or may just be given some, stays:
// they would be lost with it.
func (s *Stream) Leave(ctx context.Context) error {
	if s.suspect {
		return fmt.Errorf("leaving stream %s: the consumer's last read may still wait at the server", s.Key)
	}
	client, err := s.Client()
	if err != nil {
		return err
	}
	all, err := client.XInfoConsumers(ctx, s.Key, s.group).Result()
	if redis.HasErrorPrefix(err, "no such key") || redis.HasErrorPrefix(err, "NOGROUP") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leaving stream %s: %w", s.Key, err)
	}
	for _, c := range all {
		if c.Name != s.Consumer {
			continue
		}
		if c.Pending > 0 {
			return fmt.Errorf("leaving stream %s: the consumer has %d entries, which others take when they have rested", s.Key, c.Pending)
		}
		if err := client.XGroupDelConsumer(ctx, s.Key, s.group, s.Consumer).Err(); err != nil {
			return fmt.Errorf("leaving stream %s: %w", s.Key, err)
		}
	}
	return nil
}
