// Package databuffer has programs work on a Redis store before their turn: on copies that nobody else sees, and that become the store's
// in one step when the turn has come (SpecFaaS, section V-C). It is a proxy between a program and its session with the store. Of an
// attempt it runs what can be versioned on a Redis of the node's own, the real engine; all else waits for the attempt's turn.
package databuffer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// tableTimeout bounds asking a store for its commands.
const tableTimeout = 2 * time.Second

// Config is what a buffer is made of.
type Config struct {
	// Current is the attempt that an instance works on; nil: it works on nothing before its turn.
	Current func(instance string) *attempt.Attempt
	// Turn waits until what an instance does may have effects, or until a channel is closed; nil: none is.
	Turn func(ctx context.Context, instance string, until <-chan struct{}) error
	// Works hears that an instance does something that others may see.
	Works func(instance string)
	// Redis is the program of the node's own Redis; empty: redis-server, if there is one. Dir is its directory's path.
	Redis, Dir string
	Metrics    *Metrics
	Log        *slog.Logger
}

// Buffer has what the node's instances do with Redis before their turn. Its methods may be called at the same time.
type Buffer struct {
	config Config
	engine *engine

	ctx        context.Context // ends the background
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu     sync.Mutex
	copies map[*attempt.Attempt]*copied
}

// New returns a buffer without copies.
func New(c Config) *Buffer {
	if c.Redis == "" {
		c.Redis, _ = exec.LookPath("redis-server") // without it, everything waits for its turn
	}
	b := &Buffer{config: c, engine: &engine{program: c.Redis, dir: c.Dir, log: c.Log}, copies: map[*attempt.Attempt]*copied{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Close ends all copies. No session is open any more.
func (b *Buffer) Close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.background.Wait()
	b.engine.close()
}

// before are the copies of attempts before another one's that have answered, the last one first.
func (b *Buffer) before(c *copied) (all []*copied) {
	attempts := c.of.Before()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range attempts {
		if p := b.copies[a]; p != nil && p.name == c.name && p.own.of == c.own.of && a.IsAnswered() {
			all = append(all, p)
		}
	}
	return all
}

// Store is a store as the programs of one sandbox use it.
type Store struct {
	// name is the destination's. The client has the rights of the programs' sessions.
	name   string
	client *redis.Client

	mu       sync.Mutex
	commands table
	of       *running // that they are also of
	asked    time.Time
}

// NewStore returns the store of a destination whose connections dial makes: logged in, and in the database that programs find.
func NewStore(name string, dial func(context.Context) (net.Conn, error)) *Store {
	return &Store{name: name, client: redis.NewClient(&redis.Options{Addr: "store", Protocol: 2, PoolSize: 4, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }})}
}

// Close ends the connections to the store.
func (s *Store) Close() { _ = s.client.Close() } // they have nothing left to say

// table is what the store and the engine both can; nil: the store has not said what it can.
func (s *Store) table(ctx context.Context, r *running) table {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == r && s.commands != nil {
		return s.commands
	}
	if s.of != r || time.Since(s.asked) > againAfter {
		s.of, s.asked, s.commands = r, time.Now(), nil
		ctx, cancel := context.WithTimeout(ctx, tableTimeout)
		defer cancel()
		if reply, err := s.client.Do(ctx, "COMMAND").Slice(); err == nil {
			s.commands = parseTable(reply).both(r.commands)
		}
	}
	return s.commands
}

// copyOf returns what an attempt works on. There is none for a second store: two cannot be written in one step.
func (b *Buffer) copyOf(a *attempt.Attempt, s *Store) (*copied, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.copies[a]; c != nil {
		if c.store != s.client {
			return nil, errWait
		}
		return c, nil
	}
	if b.ctx.Err() != nil {
		return nil, errWait
	}
	r, err := b.engine.begin()
	if err != nil {
		return nil, errors.Join(errWait, err)
	}
	own, err := r.take()
	if err != nil {
		return nil, errors.Join(errWait, err)
	}
	c := &copied{name: s.name, store: s.client, own: own, metrics: b.config.Metrics, of: a, began: time.Now(), keys: map[string]*key{}, dirty: map[*passing]bool{}}
	c.before = func() []*copied { return b.before(c) }
	if !a.Affect(c) {
		own.give()
		if a.InTurn() {
			return nil, errTurn
		}
		return nil, errEngine
	}
	b.copies[a] = c
	b.background.Go(func() { b.keep(a, c) })
	return c, nil
}
