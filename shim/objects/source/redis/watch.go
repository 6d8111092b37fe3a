package redis

import (
	"context"
	"errors"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// watch is a value that is being read: a line has its key WATCHed since before the first
// byte, so that a transaction of nothing by that line tells whether somebody has touched it
// (the documentation of Redis, "Transactions"). Such a transaction ends the watch; whoever
// only wants to look begins another one before, so that there is never a gap.
type watch struct {
	version string // nobody can guess it

	turn chan struct{} // holds one who uses line or err
	line *line         // nil: the watch is over
	err  error         // why it was over before its time
}

// errChanged is a key that was touched.
var errChanged = errors.New("the watched key was changed")

// register makes a watch known to those who hold its version.
func (s *Source) register(w *watch) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w.version] = w
	return w
}

// watchOf returns the watch of a version, nil if there is none any more.
func (s *Source) watchOf(version string) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[version]
}

// unwatch ends an object's watch, if it has one.
func (o *object) unwatch() {
	w := o.watch
	if w == nil {
		return
	}
	o.mu.Lock()
	delete(o.watches, w.version)
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

// still tells whether the object is of the version that is held. Redis has no versions: only while a fetch has
// the key watched can anybody tell. The watch goes over to a new line, and tells on the way.
func (o *object) still(ctx context.Context) (same bool, err error) {
	w := o.watchOf(o.held)
	if w == nil {
		return false, nil
	}
	err = w.use(ctx, func() error {
		if w.line == nil || w.err != nil {
			return nil
		}
		next, replies, err := o.lines.ask(ctx, []string{"UNWATCH"}, []string{"WATCH", o.key})
		if err != nil {
			return err
		}
		w.err = unchanged(ctx, w.line)
		o.lines.put(w.line)
		w.line = next
		same = w.err == nil && replies[1].err == nil
		return nil
	})
	return same, err
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
