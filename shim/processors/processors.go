// Package processors tells how busy those of a machine are.
package processors

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// lookEvery is how often the kernel is asked, which takes a tenth of a millisecond: it counts in hundredths of a second.
	lookEvery = 200 * time.Millisecond
	// memory is the time in which what was before is worth 1/e: a burst of requests is over by then.
	memory = 500 * time.Millisecond
)

// Meter tells how busy they were lately.
type Meter struct {
	stat func() (procfs.Stat, error)
	busy atomic.Uint64 // the bits of a float64

	looked    time.Time
	idle, all float64 // seconds, of all processors
}

// Open returns a meter of this machine's.
func Open() (*Meter, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("how busy the processors are: %w", err)
	}
	m := &Meter{stat: fs.Stat}
	return m, m.look()
}

// Busy is which part of the processors' time was taken lately: 0 to 1. What another machine on the same host takes counts, and what gives way
// to others (nice) does not. It may be called at any time.
func (m *Meter) Busy() float64 { return math.Float64frombits(m.busy.Load()) }

// Watch has Busy be up to date until the context ends.
func (m *Meter) Watch(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			_ = m.look() // then it is as before: the kernel has answered when the meter was opened
		case <-ctx.Done():
			return
		}
	}
}

// look asks the kernel.
func (m *Meter) look() error {
	s, err := m.stat()
	if err != nil {
		return fmt.Errorf("how busy the processors are: %w", err)
	}
	c, now := s.CPUTotal, time.Now()
	idle := c.Idle + c.Iowait + c.Nice // what is nice gives way
	all := idle + c.User + c.System + c.IRQ + c.SoftIRQ + c.Steal
	if took := all - m.all; m.all > 0 && took > 0 {
		lately, before := 1-min(1, max(0, idle-m.idle)/took), m.Busy()
		m.busy.Store(math.Float64bits(before + (1-math.Exp(-float64(now.Sub(m.looked))/float64(memory)))*(lately-before)))
	}
	m.looked, m.idle, m.all = now, idle, all
	return nil
}
