// Package remote is the buffer's tier in a Redis, for nodes that have too little room of
// their own. An entry there is chunks under keys of this process, which expire: what a
// killed process leaves goes by itself, and is swept by the node's next one before that.
package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

const (
	// chunk is how many bytes one key holds: few enough that no command holds up the
	// server's other clients, which wait while it is carried out.
	chunk = 512 << 10
	// mark is the first byte of each key's value, written with the chunk's first byte and
	// never again. A chunk that the server lost, and began anew with zeros when more of it
	// was written, has none.
	mark = 1
	// lifetime is how long a chunk stays after it was written last. No request lasts
	// longer: 10 min of headstart.dev/ready-timeout at most, and 10 of timeoutSeconds.
	lifetime = 30 * time.Minute
	// commandTimeout bounds one command.
	commandTimeout = 5 * time.Second
	// pause is how long a server that failed is left alone.
	pause = 5 * time.Second
	// keyPrefix begins all keys.
	keyPrefix = "headstart:buffer:"
)

// Server is the Redis. Its methods may be called at the same time.
type Server interface {
	// Write puts bytes at an offset of a key's value, which lives for ttl from now on, and
	// tells whether there was a value, all in one. A server that has no room says
	// buffer.Full.
	Write(ctx context.Context, key string, at int64, p []byte, ttl time.Duration) (existed bool, err error)
	// Read fills p from an offset of a key's value, and returns how many bytes there were,
	// and the value's first byte as it is after that; 0 if there is none.
	Read(ctx context.Context, key string, at int64, p []byte) (n int, first byte, err error)
	// Delete removes keys, if they are there.
	Delete(ctx context.Context, keys []string) error
	// Keys calls each with the keys that begin with prefix, some at a time.
	Keys(ctx context.Context, prefix string, each func(keys []string) error) error
}

// Redis is a buffer.Medium.
type Redis struct {
	server Server
	prefix string // of this process's keys
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // deletions, and the sweep
	made   atomic.Int64   // contents so far

	mu     sync.Mutex
	closed bool
	failed time.Time // when the server failed last
}

// Open returns a medium whose keys carry the names of the node, which no other node that
// uses the server has, and of this process, which no other process of the node has. It
// removes the keys of the node's other processes in the background: one at a time has the
// name.
func Open(server Server, node, process string, log *slog.Logger) *Redis {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redis{server: server, prefix: keyPrefix + node + ":" + process + ":", log: log, ctx: ctx, cancel: cancel}
	r.wg.Go(func() { r.sweep(keyPrefix + node + ":") })
	return r
}

// sweep removes what the node's other processes have left.
func (r *Redis) sweep(prefix string) {
	err := r.server.Keys(r.ctx, prefix, func(keys []string) error {
		var left []string
		for _, key := range keys {
			if !strings.HasPrefix(key, r.prefix) {
				left = append(left, key)
			}
		}
		if len(left) == 0 {
			return nil
		}
		return r.server.Delete(r.ctx, left)
	})
	if err != nil && r.ctx.Err() == nil {
		r.log.Warn("what an earlier daemon left in the buffer's Redis expires by itself: it cannot be removed", "error", err)
	}
}

// Create implements buffer.Medium.
func (r *Redis) Create(id string) (buffer.Content, error) {
	// The chunks of the last one of this name may still have to be removed.
	prefix := fmt.Sprintf("%s%s:%d:", r.prefix, id, r.made.Add(1))
	return &content{redis: r, prefix: prefix, begun: map[int64]bool{}}, nil
}

// Close implements buffer.Medium. What it cannot remove within some seconds expires.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	last := time.AfterFunc(commandTimeout, r.cancel)
	defer last.Stop()
	r.wg.Wait()
	r.cancel()
	return nil
}

// background runs do, which Close waits for. Once closed, it is not run.
func (r *Redis) background(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.wg.Go(do)
	}
}

// answered notes how a command ended, and puts a failure into words. ctx is the caller's.
func (r *Redis) answered(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || buffer.IsFull(err) {
		return err
	}
	r.mu.Lock()
	first := time.Since(r.failed) > pause
	r.failed = time.Now()
	r.mu.Unlock()
	if first {
		r.log.Warn("the buffer's Redis failed, and gets no more inputs for a while", "error", err)
	}
	return fmt.Errorf("%w: %w", buffer.Unavailable("the Redis of the node's input buffer does not answer"), err)
}

// usable says whether the server is worth asking.
func (r *Redis) usable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed.IsZero() && time.Since(r.failed) < pause {
		return buffer.Full("the Redis of the node's input buffer does not answer")
	}
	return nil
}

// errLost is of a chunk that the server had and has no more: it was restarted, or evicts.
var errLost = buffer.Unavailable("the Redis of the node's input buffer has lost a part of the input")

var errRemoved = fmt.Errorf("writing to the buffer's Redis: %w", fs.ErrClosed)

// content is a buffer.Content.
type content struct {
	redis  *Redis
	prefix string
	size   int64 // guarded by the caller of Resize

	writes sync.WaitGroup // those under way; it grows until removed

	mu      sync.Mutex
	begun   map[int64]bool // chunks that have bytes
	removed bool
}

func (c *content) key(number int64) string { return fmt.Sprint(c.prefix, number) }

// WriteAt implements io.WriterAt.
func (c *content) WriteAt(p []byte, at int64) (int, error) {
	if !c.enter() {
		return 0, errRemoved
	}
	defer c.writes.Done()
	written := 0
	for written < len(p) {
		number, offset := at/chunk, at%chunk
		n := min(len(p)-written, int(chunk-offset))
		if err := c.write(number, offset, p[written:written+n]); err != nil {
			return written, err
		}
		written, at = written+n, at+int64(n)
	}
	return written, nil
}

// enter begins a write, unless the chunks are removed: what is written afterwards would stay.
func (c *content) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.removed {
		c.writes.Add(1)
	}
	return !c.removed
}

// write puts bytes into one chunk. If the server has lost it since, it begins with zeros.
func (c *content) write(number, offset int64, p []byte) error {
	c.mu.Lock()
	begun := c.begun[number]
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.redis.ctx, commandTimeout)
	defer cancel()
	at := offset + 1
	if offset == 0 {
		at, p = 0, append([]byte{mark}, p...)
	}
	existed, err := c.redis.server.Write(ctx, c.key(number), at, p, lifetime)
	if err := c.redis.answered(c.redis.ctx, err); err != nil {
		return err
	}
	if begun && !existed {
		return errLost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[number] = true
	return nil
}

// Resize only notes the size: the server's room is its operator's to see to.
func (c *content) Resize(size int64) error {
	if size > c.size {
		if err := c.redis.usable(); err != nil {
			return err
		}
	}
	c.size = max(c.size, size) // what was written beyond is removed with the rest
	return nil
}

// Open implements buffer.Content.
func (c *content) Open(ctx context.Context, from int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	return &reader{content: c, ctx: ctx, cancel: cancel, at: from}, nil
}

// Remove implements buffer.Content.
func (c *content) Remove(freed func()) {
	defer freed()
	c.mu.Lock()
	c.removed = true
	c.mu.Unlock()
	c.redis.background(func() {
		c.writes.Wait()
		// Some at a time: a long list is a long command.
		const some = 256
		var keys []string
		for number := int64(0); number*chunk < c.size; number++ {
			keys = append(keys, c.key(number))
			if len(keys) == some || (number+1)*chunk >= c.size {
				ctx, cancel := context.WithTimeout(c.redis.ctx, commandTimeout)
				err := c.redis.answered(c.redis.ctx, c.redis.server.Delete(ctx, keys))
				cancel()
				if err != nil {
					return // they expire
				}
				keys = keys[:0]
			}
		}
	})
}

// reader reads a content from one place on.
type reader struct {
	content *content
	ctx     context.Context
	cancel  context.CancelFunc
	at      int64
}

func (r *reader) Read(p []byte) (int, error) {
	number, offset := r.at/chunk, r.at%chunk
	p = p[:min(int64(len(p)), chunk-offset)]
	ctx, cancel := context.WithTimeout(r.ctx, commandTimeout)
	defer cancel()
	redis := r.content.redis
	n, first, err := redis.server.Read(ctx, r.content.key(number), offset+1, p)
	if err := redis.answered(r.ctx, err); err != nil {
		return 0, err
	}
	if len(p) > 0 && (n == 0 || first != mark) {
		return 0, errLost
	}
	r.at += int64(n)
	return n, nil
}

func (r *reader) Close() error {
	r.cancel()
	return nil
}
