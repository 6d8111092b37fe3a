package databuffer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// noteWord and fenced are of commit.lua: that there is a note, and that it was not written.
const noteWord, fenced = "note", -1

var (
	//go:embed commit.lua
	commitSource string

	commitScript = redis.NewScript(commitSource)
)

// Commit implements attempt.Effect.
func (c *copied) Commit(ctx context.Context, notes []*attempt.Note, following []attempt.Effect) (count int, noted bool, err error) {
	began := time.Now()
	defer func() { c.metrics.committed(began, count, err) }()
	noted = c.isOf(notes[0])
	if notes[0] != nil && !noted { // each is noted by itself before the next one counts
		following = nil
	}
	all, unlock := c.with(following)
	defer unlock()
	changes, err := changesOf(ctx, all, notes)
	if err != nil {
		return 0, false, err
	}
	count, err = write(ctx, c.store, changes)
	var refused redis.Error
	if errors.As(err, &refused) && len(changes) > 1 { // perhaps for a key of another one
		count, err = write(ctx, c.store, changes[:1])
	}
	var dial *net.OpError
	switch {
	case errors.As(err, &refused), errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, redis.ErrClosed): // nothing was written
		return 0, false, fmt.Errorf("%w: %w", attempt.ErrSquashed, err)
	case err != nil:
		return 0, noted, fmt.Errorf("%w: %w", attempt.ErrUnclear, err)
	case count == fenced:
		return 0, false, attempt.ErrFenced
	}
	for _, d := range all[:count] {
		d.over = true
		d.of.Counts(d.names(func(k *key) bool { return k.written }))
	}
	if count == 0 {
		c.of.Conflicts(c.names(func(k *key) bool { return k.looked && !k.forwarded }), c.began)
		return 0, false, attempt.ErrSquashed
	}
	return count, noted, nil
}

// with returns this one and those that follow it, as far as they are of the same store, and nobody works on them. The caller is to unlock them.
func (c *copied) with(following []attempt.Effect) (all []*copied, unlock func()) {
	c.mu.Lock()
	all = []*copied{c}
	for _, e := range following {
		d, is := e.(*copied)
		if !is || d.name != c.name || !d.mu.TryLock() {
			break
		}
		all = append(all, d)
	}
	return all, func() {
		for _, d := range all {
			d.mu.Unlock()
		}
	}
}

// change is what an attempt has read, and has written, as commit.lua has it.
type change struct {
	names []string
	args  []any
	bytes int
}

// changesOf are those of attempts, as far as one script may have them. The error is the first one's.
func changesOf(ctx context.Context, all []*copied, notes []*attempt.Note) (changes []change, err error) {
	keys, bytes := 0, 0
	for i, c := range all {
		own, err := c.change(ctx, notes[i])
		if i == 0 && err != nil {
			return nil, err
		}
		keys, bytes = keys+len(own.names), bytes+own.bytes
		if err != nil || i > 0 && (keys > keysMost || bytes > copiedMost) {
			break
		}
		changes = append(changes, own)
	}
	return changes, nil
}

// change is this one's. The caller holds mu.
func (c *copied) change(ctx context.Context, n *attempt.Note) (own change, err error) {
	if c.over || len(c.dirty) > 0 {
		return own, attempt.ErrSquashed
	}
	own.names = c.names(func(*key) bool { return true })
	after, err := c.after(ctx, own.names)
	if err != nil {
		return own, err
	}
	own.args = make([]any, 2, 2+6*len(own.names)+3)
	own.args[0], own.args[1] = len(own.names), ""
	for _, name := range own.names {
		k := c.keys[name]
		now := after[name]
		writes := k.written && !(k.looked && now.same(k.before))
		own.args = append(own.args, k.looked, k.before.dump, k.before.expires, writes, now.dump, max(0, now.expires))
		own.bytes += len(k.before.dump) + len(now.dump)
	}
	if c.isOf(n) {
		own.args[1] = noteWord
		own.names, own.args = append(own.names, n.Record), append(own.args, n.Owner, n.Field, n.Value)
		own.bytes += len(n.Value)
	}
	return own, nil
}

// isOf tells whether a note is of the same store.
func (c *copied) isOf(n *attempt.Note) bool { return n != nil && n.Store == c.name }

// write has a store hold changes, as far as all that was read is as it was.
func write(ctx context.Context, store *redis.Client, changes []change) (count int, err error) {
	names, args := []string{}, []any{len(changes)}
	for _, own := range changes {
		names, args = append(names, own.names...), append(args, own.args...)
	}
	return commitScript.Run(ctx, store, names, args...).Int()
}

// names are those of some keys, in their order. The caller holds mu.
func (c *copied) names(which func(*key) bool) []string {
	all := make([]string, 0, len(c.keys))
	for name, k := range c.keys {
		if which(k) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// after reads the values of keys that were written.
func (c *copied) after(ctx context.Context, names []string) (map[string]value, error) {
	written := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !c.keys[name].written })
	all := map[string]value{}
	if len(written) == 0 {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	values, _, err := readValues(ctx, c.own.Client, written)
	if err != nil {
		return nil, errors.Join(attempt.ErrSquashed, err)
	}
	for i, name := range written {
		all[name] = values[i]
	}
	return all, nil
}
