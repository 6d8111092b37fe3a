package redis

import (
	"context"
	"errors"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// watch is a value that is being read: a line has its key WATCHed since before the first
// byte, so that a transaction of nothing by that line tells whether somebody has touched it
// (the documentation of Redis, "Transactions"). Such a transaction ends the watch; whoever
// only wants to look begins another one before, so that there is never a gap.
type watch struct {
	of      watched
	version string

	turn chan struct{} // holds one who uses line or err
	line *line         // nil: the watch is over
	err  error         // why it was over before its time
}

// watched is a key, and the namespace for which it is fetched: others do not see it.
type watched struct{ namespace, key string }

// errChanged is a key that was touched.
var errChanged = errors.New("the watched key was changed")

// register makes a watch known to those who ask about its key.
func (s *Source) register(w *watch) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w.of] = w
	return w
}

// newest returns the newest watch, nil if there is none.
func (s *Source) newest(of watched) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[of]
}

// unwatch ends an object's watch, if it has one.
func (o *object) unwatch() {
	w := o.watch
	if w == nil {
		return
	}
	o.mu.Lock()
	if o.watches[w.of] == w {
		delete(o.watches, w.of)
	}
	o.mu.Unlock()
	w.turn <- struct{}{} // Whoever has it is bounded by his own context.
	defer func() { <-w.turn }()
	if w.line != nil {
		o.lines.put(w.line)
		w.line = nil
	}
}

// confirm reports whether the object is still the one whose first byte was read.
func (o *object) confirm(ctx context.Context) error {
	return o.watch.use(ctx, func() error {
		if o.watch.err == nil {
			o.watch.err = unchanged(ctx, o.watch.line)
		}
		return o.explain(o.watch.err)
	})
}

// explain makes a problem of what ended a watch.
func (o *object) explain(err error) error {
	switch {
	case errors.Is(err, errChanged):
		return source.Changed(o.config.Store, o.ref)
	case err != nil && !isRefusal(err):
		return source.Because(source.Unavailable(o.config.Store, "the connection broke that watched whether the object changes"), err)
	}
	return o.failure(err, true)
}

// renew looks at the object. If a fetch has it watched, the watch goes over to a new line,
// and tells on the way whether the object is still the same.
func (o *object) renew(ctx context.Context) (source.Object, error) {
	w := o.newest(watched{fair.Of(ctx), o.key})
	if w == nil {
		return o.glance(ctx)
	}
	var object source.Object
	err := w.use(ctx, func() error {
		if w.line == nil || w.err != nil {
			var err error
			object, err = o.glance(ctx)
			return err
		}
		next, replies, err := o.lines.ask(ctx, []string{"UNWATCH"}, []string{"WATCH", o.key}, []string{"EXISTS", o.key}, []string{"STRLEN", o.key})
		if err != nil {
			return err
		}
		w.err = unchanged(ctx, w.line)
		o.lines.put(w.line)
		w.line = next
		size, _, err := o.look(next, replies[1:])
		object = o.answer(size, "").Object
		if w.err == nil {
			object.Version = w.version
		}
		return err
	})
	return object, err
}

// glance looks at an object that nobody watches.
func (o *object) glance(ctx context.Context) (source.Object, error) {
	l, replies, err := o.lines.ask(ctx, []string{"PING"}, []string{"EXISTS", o.key}, []string{"STRLEN", o.key})
	if err != nil {
		return source.Object{}, err
	}
	size, _, err := o.look(l, replies)
	o.lines.put(l)
	return o.answer(size, "").Object, err
}

// use runs fn while nobody else uses the watch.
func (w *watch) use(ctx context.Context, fn func() error) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
		return fn()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unchanged ends the line's watch, with errChanged if its key was touched.
func unchanged(ctx context.Context, l *line) error {
	replies, err := l.send(ctx, []string{"MULTI"}, []string{"EXEC"})
	if err != nil {
		return err
	}
	if replies[1].null {
		return errChanged
	}
	return replies[1].err
}
