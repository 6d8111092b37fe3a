package trigger

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/semaphore"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// atOnce is how many entries of one function are being delivered by a node at a time:
	// no more are read, so that a function that is slow finds its entries in the stream,
	// where other nodes can have them.
	atOnce = 16
	// inHand is how many are held with those that wait for their next try, so that some
	// that fail do not keep the others back.
	inHand = 64
	// bytesInHand is how much they all may be, in bytes, but for bodies that are made of those
	// which are being delivered. Nothing is read while there is no room for TakeMost more.
	bytesInHand = 4 * TakeMost
	// idleGrace is how much longer than a request may take an entry rests before its
	// consumer counts as gone: the longest pause between tries, and what the gateway
	// allows beyond the timeouts.
	idleGrace = pauseMost + 10*time.Second
	// settleTimeout bounds the last words on an entry when the consumer is being stopped.
	settleTimeout = 2 * time.Second
	// outageFirst and outageMost are pauses while the stream is away. What a function has
	// answered is acknowledged late rather than not at all.
	outageFirst = 100 * time.Millisecond
	outageMost  = 5 * time.Second
	// backlogEvery is how often the backlog is asked for, which is a metric.
	backlogEvery = 10 * time.Second
)

// reasonUnavailable and reasonDead are the events of a trigger.
const (
	reasonUnavailable = "TriggerUnavailable"
	reasonDead        = "DeadLettered"
)

// field is the annotation that a trigger comes from.
const field = filterapi.AnnotationTrigger

// consumer has one function called for the entries of one stream.
type consumer struct {
	*delivery
	function func(name string) *nodeapi.Function
	stream   Stream
	events   Events
	metrics  *Metrics
	log      *slog.Logger

	// slots are those of atOnce, hands those of inHand, bytes those of bytesInHand.
	slots, hands, bytes *semaphore.Weighted
	work                sync.WaitGroup
}

// run takes and delivers until taking ends; it returns when nothing is in hand any more.
// What is being delivered when taking ends goes on until delivering does.
func (c *consumer) run(taking, delivering context.Context) {
	watching, stop := context.WithCancel(delivering)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { c.watch(watching) })
	c.take(taking, delivering)
	c.work.Wait()
	stop()
	watch.Wait()
	// What is under way elsewhere has ended with delivering; the last words are said
	// nevertheless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(delivering), settleTimeout)
	defer cancel()
	if err := c.stream.Leave(ctx); err != nil {
		c.log.Info("the consumer stays in its group; it is removed when it is a day old", "error", err)
	}
}

// take reads as many entries as can be delivered, until ctx ends.
func (c *consumer) take(ctx, delivering context.Context) {
	pause, away := outage(), false
	for {
		n, err := c.room(ctx)
		if err != nil {
			return
		}
		entries, err := c.stream.Take(ctx, n, c.idle())
		left := int64(TakeMost)
		for _, e := range entries {
			taken, size := time.Now(), min(e.Size(), left)
			left -= size
			c.work.Go(func() {
				defer c.bytes.Release(size)
				c.see(ctx, delivering, e, taken)
			})
		}
		c.spare(n-len(entries), left)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if away {
				c.log.Info("the stream is there again")
			}
			away = false
			pause.Reset()
			continue
		case !away:
			away = true
			c.log.Warn("a stream cannot be read", "error", err)
			c.events.Event(&nodeapi.Event{Function: c.trigger.GetFunction(), Reason: reasonUnavailable, Field: field, Message: "the stream cannot be read: " + err.Error()})
		}
		if rest(ctx, pause.NextBackOff()) != nil {
			return
		}
	}
}

// room waits until an entry can be delivered, and returns how many can. They may be TakeMost bytes
// together.
func (c *consumer) room(ctx context.Context) (n int, err error) {
	if err := c.bytes.Acquire(ctx, TakeMost); err != nil {
		return 0, err
	}
	if err := c.hands.Acquire(ctx, 1); err != nil {
		c.bytes.Release(TakeMost)
		return 0, err
	}
	if err := c.slots.Acquire(ctx, 1); err != nil {
		c.bytes.Release(TakeMost)
		c.hands.Release(1)
		return 0, err
	}
	for n = 1; n < atOnce && c.hands.TryAcquire(1); n++ {
		if !c.slots.TryAcquire(1) {
			c.hands.Release(1)
			break
		}
	}
	return n, nil
}

// spare gives back room that was not used.
func (c *consumer) spare(n int, bytes int64) {
	c.hands.Release(int64(n))
	c.slots.Release(int64(n))
	c.bytes.Release(bytes)
}

// idle is after how long an entry's consumer is gone.
func (c *consumer) idle() time.Duration {
	f := c.function(c.trigger.GetFunction())
	return f.GetReadyTimeout().AsDuration() + f.GetRequestTimeout().AsDuration() + idleGrace
}

// see sees one entry to its end. It begins with a slot.
func (c *consumer) see(taking, delivering context.Context, e Entry, taken time.Time) {
	defer c.hands.Release(1)
	name := c.trigger.GetFunction()
	for rounds := 1; ; rounds++ {
		used := e.Tries - 1
		if taking.Err() == nil {
			o := c.deliver(delivering, c.function(name), e)
			d := decide(o, e.Tries, int(c.trigger.GetTries()), rounds)
			c.slots.Release(1)
			if d.verdict != Again {
				c.end(taking, Fate{Verdict: d.verdict, Entry: e, Reason: d.reason, Detail: d.detail}, taken)
				return
			}
			if d.counts {
				used++
			}
			if rest(taking, jittered(d.pause)) == nil && c.slots.Acquire(taking, 1) == nil {
				e.Tries = used + 1
				mine, err := c.settle(taking, Fate{Verdict: Again, Entry: e}, taken)
				if !mine || err != nil { // another's, or pending until it is
					c.slots.Release(1)
					return
				}
				c.metrics.entry(name, resultRetried)
				taken = time.Now()
				continue
			}
		} else {
			c.slots.Release(1)
		}
		// What cannot be tried here, as the consumer is being stopped, is for others.
		e.Tries = used
		c.end(taking, Fate{Verdict: Return, Entry: e, Idle: c.idle()}, taken)
		return
	}
}

// end says the last word on an entry.
func (c *consumer) end(taking context.Context, f Fate, taken time.Time) {
	name := c.trigger.GetFunction()
	mine, err := c.settle(taking, f, taken)
	if err != nil {
		c.log.Warn("an entry stays pending; it is delivered again", "entry", f.Entry.ID, "error", err)
		return
	}
	if !mine {
		return
	}
	c.metrics.entry(name, results[f.Verdict])
	if f.Verdict == Dead {
		c.log.Warn("an entry is given up", "entry", f.Entry.ID, "tries", f.Entry.Tries, "reason", f.Reason, "detail", f.Detail)
		c.events.Event(&nodeapi.Event{Function: name, Reason: reasonDead, Field: field,
			Message: "entry " + f.Entry.ID + " is among the dead letters: " + f.Reason + ": " + f.Detail})
	}
}

// settle carries out the fate of an entry that was taken at that time, again and again
// while the stream is away. When the consumer is being stopped it tries for settleTimeout
// only.
func (c *consumer) settle(taking context.Context, f Fate, taken time.Time) (mine bool, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(taking))
	defer cancel()
	defer context.AfterFunc(taking, func() { time.AfterFunc(settleTimeout, cancel) })()
	pause := outage()
	for told := false; ; told = true {
		f.Rested = time.Since(taken)
		if mine, err = c.stream.Settle(ctx, f); err == nil {
			return mine, nil
		}
		if !told {
			c.log.Warn(
				"the stream does not accept the result of an entry; it is sent again", "entry", f.Entry.ID, "error",
				err,
			)
		}
		if rest(ctx, pause.NextBackOff()) != nil {
			return false, err
		}
	}
}

// watch keeps the metrics of the backlog up to date.
func (c *consumer) watch(ctx context.Context) {
	name := c.trigger.GetFunction()
	for {
		b, err := c.stream.Backlog(ctx)
		if err == nil {
			c.metrics.backlog(name, b)
		} else if !errors.Is(err, context.Canceled) {
			c.log.Debug("the backlog is not known", "error", err)
		}
		if rest(ctx, backlogEvery) != nil {
			return
		}
	}
}

// outage are the pauses while a stream is away.
func outage() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{InitialInterval: outageFirst, MaxInterval: outageMost, Multiplier: 2, RandomizationFactor: 0.2}
	b.Reset()
	return b
}

// jittered spreads the tries of entries that failed together by a fifth.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

// rest waits, unless ctx ends before.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
