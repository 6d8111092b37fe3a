package uplink_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// The control plane that is followed hangs, and a question is open: two and a half seconds later
// another one is followed, and asked; and the first one again, when it is back.
func TestAQuestionTellsWhoHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWithLeader(t)
		goOn := w.first.pulse.hang()
		began := time.Now()
		answer := w.activating(t.Context(), "a")
		w.a.want(asks("a"))
		w.hears("functions 2")
		w.b.want(asks("a"))
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("the other one was asked after %s", took)
		}
		w.b.say(binds("a", "one"))
		if got := <-answer; got.err != nil || got.bound.GetInstance() != "one" {
			t.Errorf("%v, %v", got.bound, got.err)
		}
		w.a.functions(3) // what it said before it hung
		w.a.expect("a is heard")
		w.hears("expect a is heard")
		goOn()
		w.hears("functions 3")
	})
}

// A node that has no question hears from another control plane of what it is to know, such as an
// instance that another node's request waits for.
func TestNewsTellWhoHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWithLeader(t)
		defer w.first.pulse.hang()()
		began := time.Now()
		w.b.instances(5)
		w.hears("functions 2", "instances 5")
		if took := time.Since(began); took > 1700*time.Millisecond { // a request waits 2 s for them
			t.Errorf("they were taken from the other one after %s", took)
		}
		// And when that has gone there is none but the one that hangs.
		w.b.end <- nil
		w.hears("functions 1")
	})
}

// Nobody is better while all hang, or the way to all of them is cut, nor one that answers late,
// but in time.
func TestWhoAnswersIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWithLeader(t)
		goOn := w.first.pulse.hang()
		w.b.instances(5)
		time.Sleep(1400 * time.Millisecond)
		goOn()
		time.Sleep(time.Second)
		goOn = w.first.pulse.hang()
		goOnToo := w.second.pulse.hang()
		w.b.instances(6)
		time.Sleep(time.Minute)
		w.b.expect("b is heard")
		w.hears("expect b is heard")
		goOnToo()
		w.hears("functions 2", "instances 6")
		goOn()
		w.hears("functions 1")
	})
}

// A control plane that is slow is not asked all the time because of it.
func TestWhoIsSlowIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoWithLeader(t)
		time.Sleep(time.Second)
		before := w.first.pulse.count()
		for i := range 1000 {
			w.b.instances(i)
			time.Sleep(time.Millisecond)
		}
		if asked := w.first.pulse.count() - before; asked < 1 || asked > 6 {
			t.Errorf("it was asked %d times within a second", asked)
		}
		w.b.expect("nothing of it was taken from the other one")
		w.hears("expect nothing of it was taken from the other one")
	})
}

// newTwoWithLeader has two control planes, the first of which is in charge.
func newTwoWithLeader(t *testing.T) *two {
	t.Helper()
	w := newTwo(t)
	w.a.functions(1)
	w.hears("functions 1")
	w.a.inCharge(true)
	w.a.expect("a is in charge")
	w.hears("expect a is in charge")
	w.b.functions(2)
	w.b.expect("b is there")
	w.hears("expect b is there")
	return w
}
