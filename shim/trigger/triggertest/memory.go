package triggertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/trigger"
)

// Memory is a stream in memory, with the one group of Function, and a Rig.
type Memory struct {
	// Block is how long Take waits for an entry.
	Block time.Duration

	mu        sync.Mutex
	away      error
	entries   []trigger.Entry
	read      int
	pending   map[string]*holding
	consumers map[string]bool
	dead      []map[string]string
	more      chan struct{} // closed and replaced at each Add
	made      int
}

type holding struct {
	entry    trigger.Entry
	consumer string
	since    time.Time
}

// ErrAway is what a stream that is away says.
var ErrAway = errors.New("the stream is away")

// NewMemory returns an empty stream.
func NewMemory(block time.Duration) *Memory {
	return &Memory{Block: block, pending: map[string]*holding{}, consumers: map[string]bool{}, more: make(chan struct{})}
}

// Open implements Rig.
func (m *Memory) Open(consumer string) trigger.Stream { return &part{m, consumer} }

// Put is Add without a test.
func (m *Memory) Put(fields map[string]string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	id := fmt.Sprintf("%d-%d", time.Now().UnixMilli(), m.made)
	m.entries = append(m.entries, trigger.Entry{ID: id, Fields: maps.Clone(fields)})
	close(m.more)
	m.more = make(chan struct{})
	return id
}

// Add implements Rig.
func (m *Memory) Add(_ *testing.T, fields map[string]string) string { return m.Put(fields) }

// Pending implements Rig.
func (m *Memory) Pending(*testing.T) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]string{}
	for id, h := range m.pending {
		all[id] = h.consumer
	}
	return all
}

// Consumers implements Rig.
func (m *Memory) Consumers(*testing.T) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.consumers))
}

// Dead implements Rig.
func (m *Memory) Dead(*testing.T) []map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dead)
}

// Lose implements Rig.
func (m *Memory) Lose(*testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries, m.read, m.pending, m.consumers = nil, 0, map[string]*holding{}, map[string]bool{}
}

// SetAway has the stream fail, or be there again.
func (m *Memory) SetAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = nil
	if away {
		m.away = ErrAway
	}
}

// part is one consumer's.
type part struct {
	*Memory
	consumer string
}

// Take implements trigger.Stream.
func (p *part) Take(ctx context.Context, most int, idle time.Duration) ([]trigger.Entry, error) {
	late := time.NewTimer(p.Block)
	defer late.Stop()
	for {
		entries, more, err := p.now(most, idle)
		if len(entries) > 0 || err != nil {
			return entries, err
		}
		select {
		case <-more:
		case <-late.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// now takes what is there.
func (p *part) now(most int, idle time.Duration) (taken []trigger.Entry, more chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return nil, nil, p.away
	}
	p.consumers[p.consumer] = true
	room := int64(trigger.TakeMost)
	take := func(e trigger.Entry) (taking bool) {
		if e.Size() > trigger.TakeMost {
			e.Fields, e.TooLarge = map[string]string{}, true
		}
		if len(taken) == most || e.Size() > room {
			return false
		}
		room -= e.Size()
		taken = append(taken, e)
		return true
	}
	for _, id := range slices.Sorted(maps.Keys(p.pending)) {
		h := p.pending[id]
		next := h.entry
		next.Tries++
		if h.consumer != p.consumer && time.Since(h.since) >= idle && take(next) {
			h.consumer, h.since, h.entry = p.consumer, time.Now(), next
		}
	}
	if len(taken) > 0 {
		return taken, p.more, nil
	}
	for ; p.read < len(p.entries); p.read++ {
		e := p.entries[p.read]
		e.Tries = 1
		if !take(e) {
			break
		}
		p.pending[e.ID] = &holding{entry: e, consumer: p.consumer, since: time.Now()}
	}
	return taken, p.more, nil
}

// Settle implements trigger.Stream.
func (p *part) Settle(_ context.Context, f trigger.Fate) (mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return false, p.away
	}
	h := p.pending[f.Entry.ID]
	switch f.Verdict {
	case trigger.Done:
		delete(p.pending, f.Entry.ID)
		return true, nil
	case trigger.Dead:
		if h == nil {
			return true, nil
		}
		letter := maps.Clone(f.Entry.Fields)
		letter["headstart-id"], letter["headstart-function"] = f.Entry.ID, Function
		letter["headstart-tries"], letter["headstart-reason"], letter["headstart-detail"] = strconv.Itoa(f.Entry.Tries), f.Reason, f.Detail
		p.dead = append(p.dead, letter)
		delete(p.pending, f.Entry.ID)
		return true, nil
	}
	own := h != nil && f.Verdict == trigger.Again && h.consumer == p.consumer
	if h == nil || !own && time.Since(h.since) < f.Rested*9/10 {
		return false, nil
	}
	h.consumer, h.since, h.entry.Tries = p.consumer, time.Now(), f.Entry.Tries
	if f.Verdict == trigger.Return {
		h.consumer, h.since = "", h.since.Add(-f.Idle)
	}
	return true, nil
}

// Backlog implements trigger.Stream.
func (p *part) Backlog(context.Context) (trigger.Backlog, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return trigger.Backlog{Lag: int64(len(p.entries) - p.read), Pending: int64(len(p.pending))}, p.away
}

// Leave implements trigger.Stream.
func (p *part) Leave(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.pending {
		if h.consumer == p.consumer {
			return errors.New("the consumer has entries")
		}
	}
	delete(p.consumers, p.consumer)
	return p.away
}
