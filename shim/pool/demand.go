package pool

import "time"

const (
	// remembered is how long a start counts: a function that does not start any more has nothing waiting for it.
	remembered = 10 * time.Minute
	// startsMost is how many starts of a function are looked at.
	startsMost = 64
	// keptMost is how many connections one function has waiting: what starts beyond that in one burst opens its own.
	keptMost = 8
	// pause is how long after a start nothing is opened: in a burst the node's cores and the server's are the programs'.
	pause = 100 * time.Millisecond
	// pauseMost bounds that where starts never pause.
	pauseMost = time.Second
	// learning is how much of a new connection's set-up time goes into the estimate, as TCP takes it for round trips
	// (RFC 6298, section 2).
	learning = 0.125
)

// demand says how many connections a function is to have waiting, by its starts and by how long it takes to open one: as
// many as have started in the time in which a connection that was taken is replaced.
type demand struct {
	starts []time.Time // the last of them, in order
	setup  time.Duration
}

// started notes that a program has asked for a connection.
func (d *demand) started(now time.Time) {
	if d.starts = append(d.starts, now); len(d.starts) > startsMost {
		d.starts = d.starts[1:]
	}
}

// forgetLast forgets the last start.
func (d *demand) forgetLast() { d.starts = d.starts[:max(0, len(d.starts)-1)] }

// opened notes how long it took to open a connection.
func (d *demand) opened(took time.Duration) {
	if d.setup == 0 {
		d.setup = took
	}
	d.setup += time.Duration(learning * float64(took-d.setup))
}

// want is how many connections are to wait.
func (d *demand) want(now time.Time) (most int) {
	for len(d.starts) > 0 && now.Sub(d.starts[0]) >= remembered {
		d.starts = d.starts[1:]
	}
	replaced, first := pause+d.setup, 0
	for last, at := range d.starts {
		for at.Sub(d.starts[first]) > replaced {
			first++
		}
		most = max(most, last-first+1)
	}
	return min(most, keptMost)
}

// last is when a program has started last, and zero if none has.
func (d *demand) last() (at time.Time) {
	if n := len(d.starts); n > 0 {
		at = d.starts[n-1]
	}
	return at
}
