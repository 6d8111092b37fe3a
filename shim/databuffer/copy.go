package databuffer

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

const (
	// keysMost, partsMost and copiedMost bound what one attempt has copies of: keys, parts of each, and bytes of all as DUMP returns
	// them. What is written in the end has the same bounds.
	keysMost, partsMost, copiedMost = 1000, 10_000, 1 << 20
	// queuedMost is how many commands a transaction of an attempt has: the engine looks at its memory before all of them.
	queuedMost = 64
	// skewMost is how much the store's clock may differ from the node's, and expiryLeast how long keys have to live: copies expire by
	// the node's.
	skewMost, expiryLeast = time.Second, 10 * time.Second
)

var (
	// errWait is why a command waits for the attempt's turn.
	errWait = errors.New("it cannot be versioned")
	// errTurn is why a command does not: the turn has come.
	errTurn = errors.New("the turn has come")
	// errSettling is why a command is to be looked at again: the turn is about to come, or never will.
	errSettling = errors.New("the turn is about to come")

	errLarge = fmt.Errorf("the values have more than %d bytes, or one has more than %d parts", copiedMost, partsMost)

	//go:embed read.lua
	readSource string

	readScript = redis.NewScript(readSource)
)

// copied is what an attempt works on: copies of keys of a store, in a database of the engine's. Nobody else sees them. In the attempt's
// turn, one script writes what it has changed, if all that it has read is as it was (SpecFaaS, section V-C: its data buffer has a column
// of bits for each function; here are the values themselves, so others may write the store meanwhile).
type copied struct {
	name    string // the store's
	store   *redis.Client
	own     *database
	metrics *Metrics
	of      *attempt.Attempt
	before  func() []*copied // those of attempts before it that have answered, the last one first
	began   time.Time

	mu    sync.Mutex // held by each command, and while it is committed
	keys  map[string]*key
	size  int
	over  bool              // the turn has come, or never will
	dirty map[*passing]bool // of which a transaction is open
}

// key is one of which there is a copy, or which was written without a look at it.
type key struct {
	looked  bool // the store has to hold what it held
	before  value
	written bool
	// forwarded: it was found as an attempt before has written it.
	forwarded bool
}

// value is a key's, as DUMP returns it; nil: there is none.
type value struct {
	dump    []byte
	expires int64 // in milliseconds since 1970; below 0: it does not (PEXPIRETIME)
}

func (v value) same(w value) bool { return bytes.Equal(v.dump, w.dump) && v.expires == w.expires }

// bring has copies of keys be there. The caller holds mu.
func (c *copied) bring(ctx context.Context, keys []string, writes bool) error {
	var missing []string
	for _, k := range keys {
		if c.keys[k] == nil && !slices.Contains(missing, k) {
			missing = append(missing, k)
		}
	}
	if len(c.keys)+len(missing) > keysMost {
		return errWait
	}
	if len(missing) > 0 {
		values, forwarded, size, err := c.look(ctx, missing)
		if err != nil {
			return err
		}
		if c.size+size > copiedMost {
			return errWait
		}
		if err := c.restore(ctx, missing, values); err != nil {
			return err
		}
		c.size += size
		for i, k := range missing {
			c.keys[k] = &key{looked: true, before: values[i], forwarded: forwarded[k]}
		}
	}
	for _, k := range keys {
		c.keys[k].written = c.keys[k].written || writes
	}
	return nil
}

// look returns what keys hold: what attempts before have written, whose turns have not come, and else what the store has.
func (c *copied) look(ctx context.Context, keys []string) (values []value, forwarded map[string]bool, size int, err error) {
	ahead := map[string]value{}
	for _, p := range c.before() {
		if err := p.forward(ctx, c, keys, ahead); err != nil {
			return nil, nil, 0, err
		}
	}
	c.metrics.forwarded.Add(float64(len(ahead)))
	forwarded = map[string]bool{}
	var left []string
	for _, k := range keys {
		v, is := ahead[k]
		if forwarded[k] = is; !is {
			left = append(left, k)
			continue
		}
		if v.unordered() || v.expires > 0 && time.UnixMilli(v.expires).Before(time.Now().Add(expiryLeast)) {
			return nil, nil, 0, errWait
		}
	}
	var stored []value
	if len(left) > 0 {
		if stored, _, err = c.read(ctx, left); err != nil {
			return nil, nil, 0, err
		}
	}
	for _, k := range keys {
		v, is := ahead[k]
		if !is {
			v, stored = stored[0], stored[1:]
		}
		values = append(values, v)
		size += len(v.dump)
	}
	return values, forwarded, size, nil
}

// unordered tells whether each server returns the value in an order of its own: those of sets and hashes in hash tables (RDB's types 2 and 4).
func (v value) unordered() bool { return len(v.dump) > 0 && (v.dump[0] == 2 || v.dump[0] == 4) }

// forward adds what keys hold that this attempt has written. The later one, which holds its mu, waits for an older one alone: so nobody waits for
// himself.
func (c *copied) forward(ctx context.Context, later *copied, keys []string, to map[string]value) error {
	if c.of.Older(later.of) {
		c.mu.Lock()
	} else if !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	if c.over || c.of.InTurn() || len(c.dirty) > 0 {
		return nil
	}
	wanted := slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		_, is := to[k]
		return is || c.keys[k] == nil || !c.keys[k].written
	})
	values, err := c.after(ctx, wanted)
	if err != nil {
		return errors.Join(errWait, err)
	}
	for k, v := range values {
		to[k] = v
	}
	return nil
}

// set says that keys were written without a look at them. The caller holds mu.
func (c *copied) set(keys []string) {
	for _, k := range keys {
		if c.keys[k] == nil {
			c.keys[k] = &key{}
		}
		c.keys[k].written = true
	}
}

// read reads values from the store, all at the same time.
func (c *copied) read(ctx context.Context, keys []string) (values []value, size int, err error) {
	began := time.Now()
	values, now, err := readValues(ctx, c.store, keys)
	if err != nil {
		return nil, 0, errors.Join(errWait, err)
	}
	skewed := now.Before(began.Add(-skewMost)) || now.After(time.Now().Add(skewMost))
	for _, v := range values {
		if v.dump != nil && format(v.dump) != c.own.of.format {
			return nil, 0, errWait
		}
		if v.expires > 0 && (skewed || time.UnixMilli(v.expires).Before(now.Add(expiryLeast))) {
			return nil, 0, errWait
		}
		size += len(v.dump)
	}
	return values, size, nil
}

// readValues reads values of a server, all at the same time, and the time there.
func readValues(ctx context.Context, from *redis.Client, keys []string) (values []value, now time.Time, err error) {
	reply, err := readScript.Run(ctx, from, keys, partsMost, copiedMost).Slice()
	if err != nil {
		return nil, now, fmt.Errorf("reading values: %w", err)
	}
	if len(reply) != 1+2*len(keys) {
		return nil, now, errLarge
	}
	for i := range keys {
		v := value{expires: int64(number(reply[2*i+2]))}
		if dump, is := reply[2*i+1].(string); is {
			v.dump = []byte(dump)
		}
		values = append(values, v)
	}
	return values, time.UnixMilli(int64(number(reply[0]))), nil
}

// restore has the engine hold the values.
func (c *copied) restore(ctx context.Context, keys []string, values []value) error {
	_, err := c.own.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, v := range values {
			if v.dump != nil {
				p.Do(ctx, "RESTORE", keys[i], max(0, v.expires), v.dump, "ABSTTL")
			}
		}
		return nil
	})
	if err != nil { // such as a format that is newer than the engine
		return fmt.Errorf("%w: %w", errWait, err)
	}
	return nil
}

// end lets go of the copies. Nothing of them counts any more, if they were not committed.
func (c *copied) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.own.give()
}

// keep has the copies be there until the attempt's turn has come, or never will.
func (b *Buffer) keep(a *attempt.Attempt, c *copied) {
	select {
	case <-a.Turn():
	case <-a.Squashed():
	case <-b.ctx.Done():
	case <-c.own.of.ended: // so what it has read and written is lost
		if a.Squash(); !a.IsSquashed() { // it is about to count, or not to
			select {
			case <-a.Turn():
			case <-a.Squashed():
			}
		}
	}
	c.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.copies, a)
}
