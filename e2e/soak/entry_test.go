//go:build integration

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/e2e/soak/proxy"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// queuesProcess is the Redis that has the streams, and its store's name; it keeps what it
	// has when it dies. queueKeyspace begins their keys.
	queuesProcess = "queues"
	queueKeyspace = "queue"
	// queueTries is how often an entry is tried.
	queueTries = 2
	// entryField is the attribute that says which case an entry is.
	entryField = "soakcase"
	// rested is longer than any entry of a living consumer rests.
	rested = time.Hour
)

// queue is a stream, and the function that is called for its entries.
type queue struct{ name, function, store string }

// queues are by what their entries bring.
var queues = []queue{{"s3", "queue-s3", "s3"}, {"body", "queue-body", ""}, {"mortal", "queue-mortal", "s3"}}

func (q queue) key() string   { return queueKeyspace + ":" + q.name }
func (q queue) group() string { return "headstart:soak/" + q.function }

// queue is that of an entry.
func (r *run) queue() queue {
	switch {
	case r.Fault == plan.NodeDies:
		return queues[2]
	case r.Input == plan.Body:
		return queues[1]
	}
	return queues[0]
}

// triggers are those of both nodes.
func triggers() []*nodeapi.Trigger {
	var all []*nodeapi.Trigger
	for _, q := range queues {
		t := &nodeapi.Trigger{Function: "soak/" + q.function, Store: queuesProcess, Stream: "redis://" + queueKeyspace + "/" + q.name, Tries: queueTries}
		if q.store != "" {
			t.Input = fmt.Sprintf("s3://%s/{header.ce-subject}", testbed.Bucket)
		}
		all = append(all, t)
	}
	return all
}

// streams are all queues' server.
type streams struct {
	client *redis.Client
	way    *proxy.Server // by which the nodes reach it

	mu sync.Mutex
	// dead are consumers that are no more.
	dead map[string]bool
	// entries are those that were added and settled, by stream and id; letters are how many
	// of them are dead letters, by stream.
	entries map[string]bool
	letters map[string]int
}

func (w *world) openStreams(ctx context.Context) (*streams, error) {
	s := &streams{dead: map[string]bool{}, entries: map[string]bool{}, letters: map[string]int{}}
	var err error
	if s.client, err = w.startRedis(ctx, queuesProcess, true); err != nil {
		return nil, err
	}
	var exchanges atomic.Int64
	s.way, err = proxy.Redis(s.client.Options().Addr, queueKeyspace+":", func(string) proxy.Fault {
		if at, breaks := w.plan.Line(int(exchanges.Add(1))); breaks {
			return proxy.Fault{Kind: proxy.Resets, At: at}
		}
		return proxy.Fault{}
	})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() {
		if err := s.way.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s, nil
}

// bereave notes that a node's consumers are dead.
func (s *streams) bereave(ctx context.Context, node string) error {
	for _, q := range queues {
		var pending []redis.XPendingExt
		err := testbed.Poll(ctx, patience, func(ctx context.Context) error { // it may be restarting
			consumers, err := s.client.XInfoConsumers(ctx, q.key(), q.group()).Result()
			if redis.HasErrorPrefix(err, "no such key") || redis.HasErrorPrefix(err, "NOGROUP") {
				return nil
			}
			if err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range consumers {
				if strings.HasPrefix(c.Name, node+"/") {
					s.dead[c.Name] = true
				}
			}
			pending, err = s.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: q.key(), Group: q.group(), Start: "-", End: "+", Count: 1000}).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("looking for the consumers of %s: %w", node, err)
		}
		for _, p := range pending {
			if err := s.age(ctx, q, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// age makes an entry of a dead consumer one that has rested for long: others take it then, and
// the test need not wait for that.
func (s *streams) age(ctx context.Context, q queue, p redis.XPendingExt) error {
	s.mu.Lock()
	dead := s.dead[p.Consumer]
	s.mu.Unlock()
	if !dead || p.Idle >= rested {
		return nil
	}
	return testbed.Poll(ctx, patience, func(ctx context.Context) error {
		return s.client.Do(ctx, "XCLAIM", q.key(), q.group(), p.Consumer, p.Idle.Milliseconds(), p.ID,
			"IDLE", rested.Milliseconds(), "RETRYCOUNT", p.RetryCount, "JUSTID").Err()
	})
}

// enqueue adds the case's entry to its stream, and returns what became of it.
func (r *run) enqueue() outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, q := r.w.streams, r.queue()
	id, err := s.add(ctx, q, r.fields())
	if err != nil {
		return outcome{err: fmt.Errorf("adding the entry: %w", err)}
	}
	var letter map[string]any
	err = testbed.Poll(ctx, patience, func(ctx context.Context) error {
		pending, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: q.key(), Group: q.group(), Start: id, End: id, Count: 1}).Result()
		switch {
		case redis.HasErrorPrefix(err, "NOGROUP"):
			return errors.New("nobody consumes the stream")
		case err != nil:
			return err
		case len(pending) > 0:
			return errors.Join(fmt.Errorf("entry %s is pending: %+v", id, pending[0]), s.age(ctx, q, pending[0]))
		}
		if letter, err = s.letter(ctx, q, id); err == nil && letter == nil && r.answered.Load() == 0 {
			return fmt.Errorf("nobody has taken entry %s, or it is lost", id)
		}
		return err
	})
	if err != nil {
		return outcome{err: err}
	}
	return r.settle(id, letter)
}

// settle notes what became of an entry; letter is nil if it was answered.
func (r *run) settle(id string, letter map[string]any) (o outcome) {
	s, q := r.w.streams, r.queue()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[q.key()+" "+id] = true
	if letter == nil {
		o.status = 200
		return o
	}
	s.letters[q.key()]++
	o.problem.Title, o.problem.Detail = fmt.Sprint(letter["headstart-reason"]), fmt.Sprint(letter["headstart-detail"])
	for name, value := range r.fields() {
		if letter[name] != value {
			o.broken = fmt.Errorf("the dead letter has another %s", name)
		}
	}
	return o
}

// settled says what is wrong with what became of an entry. The caller holds mu.
func (r *run) settled(o outcome, may verdict, f facts) error {
	known, err := titles()
	answered := r.answered.Load()
	switch {
	case err != nil:
		return err
	case o.err != nil:
		return o.err
	case o.broken != nil:
		return o.broken
	case answered > 1 && !f.died:
		return fmt.Errorf("it was answered %d times, and no consumer died", answered)
	case o.status == 0 && (!slices.Contains(may.fails, o.problem.Title) || o.problem.Detail == "" || !known[o.problem.Title] && o.problem.Title != "FunctionRefused"):
		return fmt.Errorf("it is a dead letter for %+v; it may be right: %t, or fail with %v", o.problem, may.right, may.fails)
	case o.status != 0 && !may.right:
		return errors.New("it was answered, and should have failed")
	}
	return nil
}

// fields are the entry.
func (r *run) fields() map[string]any {
	fields := map[string]any{entryField: fmt.Sprint(r.Number), "traceparent": r.traceparent()}
	switch {
	case r.Input == plan.Body:
		fields["data"] = string(r.Content(1))
		return fields
	case r.OwnBody:
		fields["data"] = string(r.Own())
	}
	fields["subject"] = "../" + r.ID
	if r.Fault != plan.Foreign {
		fields["subject"] = strings.TrimPrefix(r.reference(), "s3://"+testbed.Bucket+"/")
	}
	return fields
}

// add adds an entry once, also to a server that is being restarted.
func (s *streams) add(ctx context.Context, q queue, fields map[string]any) (id string, err error) {
	tried := false
	err = testbed.Poll(ctx, patience, func(ctx context.Context) error {
		if tried { // and perhaps only the answer was lost
			all, err := s.client.XRevRangeN(ctx, q.key(), "+", "-", int64(2**workers)).Result()
			if err != nil {
				return err
			}
			for _, m := range all {
				if m.Values[entryField] == fields[entryField] {
					id = m.ID
					return nil
				}
			}
		}
		tried = true
		id, err = s.client.XAdd(ctx, &redis.XAddArgs{Stream: q.key(), Values: fields}).Result()
		return err
	})
	return id, err
}

// letter returns the dead letter of an entry, nil if there is none.
func (s *streams) letter(ctx context.Context, q queue, id string) (map[string]any, error) {
	all, err := s.client.XRevRange(ctx, q.key()+":dead", "+", "-").Result()
	for _, m := range all {
		if m.Values["headstart-id"] == id {
			return m.Values, nil
		}
	}
	return nil, err
}

// nothingLeft looks for entries that nobody has seen to, and for some that are in both ends.
func (s *streams) nothingLeft(ctx context.Context) error {
	left := maps.Clone(s.entries) // nobody adds to them any more
	var errs []error
	for _, q := range queues {
		all, err := s.client.XRange(ctx, q.key(), "-", "+").Result()
		errs = append(errs, err)
		for _, m := range all {
			if !left[q.key()+" "+m.ID] {
				errs = append(errs, fmt.Errorf("%s has entry %s of nobody, or of a case that failed", q.key(), m.ID))
			}
			delete(left, q.key()+" "+m.ID)
		}
		letters, err := s.client.XLen(ctx, q.key()+":dead").Result()
		if err == nil && int(letters) != s.letters[q.key()] {
			err = fmt.Errorf("%s has %d dead letters of %d entries", q.key(), letters, s.letters[q.key()])
		}
		errs = append(errs, err)
		groups, err := s.client.XInfoGroups(ctx, q.key()).Result()
		errs = append(errs, err)
		for _, g := range groups {
			if g.Pending != 0 || g.Lag != 0 {
				errs = append(errs, fmt.Errorf("%s has %d entries pending, and %d untaken", q.key(), g.Pending, g.Lag))
			}
		}
	}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("entries are lost: %v", left))
	}
	return errors.Join(errs...)
}
