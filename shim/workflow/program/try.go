package program

import (
	"slices"
	"time"
)

// allows tells whether one more retry may begin at that time. Some were made, since the tasks were begun for the first time.
func (r *retry) allows(made int, began, at time.Time) bool {
	most, long := int(r.GetAttempts()), r.GetDuration().AsDuration()
	return (most == 0 || made < most) && (long == 0 || at.Sub(began) <= long)
}

// catch has a try do with a fault of its tasks what it says; false: it does not take it.
func (t *turn) catch(f *frame, context any, fault *Fault) bool {
	try, of := f.task.try, f.up
	if !fault.fits(try.with) {
		return false
	}
	g := of.in(ofCatch, of.task, f.index, t.now)
	g.scope = append(slices.Clip(of.scope), any(fault.Value()))
	takes, bad := t.holds(g, context, "/catch", try.when, try.exceptWhen)
	if bad == nil && takes && try.retry != nil {
		var retried bool
		if retried, bad = t.retry(f, g, context); retried {
			return true
		}
		takes = try.catches
	}
	switch {
	case bad != nil: // which takes the fault's place
		t.fail(of, context, bad)
		return true
	case takes:
		t.list(try.catch, of.input, g, context)
	}
	return takes
}

// retry has the tasks of a try done again, if that is to be.
func (t *turn) retry(f, g *frame, context any) (is bool, bad *Fault) {
	r := f.task.try.retry
	is, bad = t.holds(g, context, "/catch/retry", r.when, r.exceptWhen)
	at := t.now.Add(t.delay(r, f))
	if is = is && bad == nil && r.allows(f.index, f.started, at); is {
		t.open(&Step{Until: at, frame: f, context: context, again: true})
	}
	return is, bad
}

// holds tells whether the first condition of a try holds, and the second one does not. Those that are missing say yes.
func (t *turn) holds(g *frame, context any, key string, when, exceptWhen *expr) (bool, *Fault) {
	seen := view{value: g.up.input, context: context, input: g.up.input}
	for _, c := range []struct {
		key    string
		e      *expr
		wanted bool
	}{{"/when", when, true}, {"/exceptWhen", exceptWhen, false}} {
		if c.e == nil {
			continue
		}
		v, err := t.eval(c.e, g, seen)
		if err != nil {
			return false, badExpression(g.task.path+key+c.key, err)
		}
		if truth(v) != c.wanted {
			return false, nil
		}
	}
	return true, nil
}

// delay is how long the retry after an attempt waits.
func (t *turn) delay(r *retry, f *frame) time.Duration {
	d, number := r.GetDelay().AsDuration(), f.index+1
	switch r.GetBackoff() {
	case "linear":
		d *= time.Duration(number)
	case "exponential":
		d <<= min(number-1, maxDoublings)
	}
	if from, to := r.GetJitterFrom().AsDuration(), r.GetJitterTo().AsDuration(); to > from {
		d += from + t.random(f, to-from)
	}
	return min(d, delayMost)
}
