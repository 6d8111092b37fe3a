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
	// keysMost and copiedMost bound what one attempt has copies of, the latter in bytes.
	keysMost   = 1000
	copiedMost = 1 << 20
)

var (
	// errWait is why a command waits for the attempt's turn.
	errWait = errors.New("it cannot be versioned")
	// errTurn is why a command does not: the turn has come.
	errTurn = errors.New("the turn has come")

	//go:embed read.lua
	readSource string
	//go:embed commit.lua
	commitSource string

	readScript, commitScript = redis.NewScript(readSource), redis.NewScript(commitSource)
)

// copied is what an attempt works on: copies of keys of a store, in a database of the engine's. Nobody else sees them. In the attempt's
// turn, one script writes what it has changed, if all that it has read is as it was (SpecFaaS, section V-C: its data buffer has a column
// of bits for each function; here are the values themselves, so others may write the store meanwhile).
type copied struct {
	store   *redis.Client
	own     *database
	metrics *Metrics

	mu    sync.Mutex // held by each command, and while it is committed
	keys  map[string]*key
	size  int
	over  bool              // the turn has come, or never will
	dirty map[*session]bool // of which a transaction is open
}

// key is one of which there is a copy, or which was written without a look at it.
type key struct {
	looked  bool // the store has to hold what it held
	before  value
	written bool
}

// value is a key's, as DUMP returns it; nil: there is none.
type value struct {
	dump    []byte
	expires int64 // in milliseconds since 1970; below 0: it does not (PEXPIRETIME)
}

func (v value) same(w value) bool { return bytes.Equal(v.dump, w.dump) && v.expires == w.expires }

// bring has copies of keys be there. The caller holds mu.
func (c *copied) bring(ctx context.Context, keys []string, e entry) error {
	var missing []string
	for _, k := range keys {
		if c.keys[k] == nil && !e.blind && !slices.Contains(missing, k) {
			missing = append(missing, k)
		}
	}
	if len(c.keys)+len(keys) > keysMost {
		return errWait
	}
	if len(missing) > 0 {
		values, size, err := c.read(ctx, missing)
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
			c.keys[k] = &key{looked: true, before: values[i]}
		}
	}
	for _, k := range keys {
		if c.keys[k] == nil {
			c.keys[k] = &key{}
		}
		c.keys[k].written = c.keys[k].written || e.writes
	}
	return nil
}

// read reads values from the store, all at the same time.
func (c *copied) read(ctx context.Context, keys []string) (values []value, size int, err error) {
	reply, err := readScript.Run(ctx, c.store, keys, copiedMost).Slice()
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errWait, err)
	}
	if len(reply) != 2*len(keys) { // one is too large
		return nil, 0, errWait
	}
	for i := range keys {
		v := value{expires: int64(number(reply[2*i+1]))}
		if dump, is := reply[2*i].(string); is {
			v.dump = []byte(dump)
		}
		values, size = append(values, v), size+len(v.dump)
	}
	return values, size, nil
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

// Commit implements attempt.Effect.
func (c *copied) Commit(ctx context.Context) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	defer func() { c.metrics.committed(began, err) }()
	if c.over || len(c.dirty) > 0 {
		return attempt.ErrSquashed
	}
	names := make([]string, 0, len(c.keys))
	for name := range c.keys {
		names = append(names, name)
	}
	slices.Sort(names)
	after, err := c.after(ctx, names)
	if err != nil {
		return err
	}
	args := make([]any, 0, 6*len(names))
	for _, name := range names {
		k := c.keys[name]
		now := after[name]
		writes := k.written && !(k.looked && now.same(k.before))
		args = append(args, k.looked, k.before.dump, k.before.expires, writes, now.dump, max(0, now.expires))
	}
	done, err := commitScript.Run(ctx, c.store, names, args...).Int()
	var refused redis.Error
	switch {
	case errors.As(err, &refused): // nothing was written
		return fmt.Errorf("%w: %w", attempt.ErrSquashed, err)
	case err != nil:
		return fmt.Errorf("%w: %w", attempt.ErrUnclear, err)
	case done == 0:
		return attempt.ErrSquashed
	}
	c.over = true
	return nil
}

// after reads the values of keys that were written.
func (c *copied) after(ctx context.Context, names []string) (map[string]value, error) {
	type read struct{ dump, expires *redis.Cmd }
	reads := map[string]read{}
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	_, err := c.own.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			if c.keys[name].written {
				reads[name] = read{p.Do(ctx, "DUMP", name), p.Do(ctx, "PEXPIRETIME", name)}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: %w", attempt.ErrSquashed, err)
	}
	all := map[string]value{}
	for name, r := range reads {
		v := value{}
		if dump, err := r.dump.Text(); err == nil {
			v.dump = []byte(dump)
		} else if !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("%w: %w", attempt.ErrSquashed, err)
		}
		if v.expires, err = r.expires.Int64(); err != nil {
			return nil, fmt.Errorf("%w: %w", attempt.ErrSquashed, err)
		}
		all[name] = v
	}
	return all, nil
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
	}
	c.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.copies, a)
}
