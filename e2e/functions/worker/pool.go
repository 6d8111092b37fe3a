package main

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/alarm"
)

const (
	// What a request takes of a worker: evenly between these.
	shortest, longest = 3 * time.Millisecond, 5 * time.Millisecond
	// queuePerWorker bounds what waits: 2 s of what a worker does. That is longer than users
	// care to wait, as buffers for bursts and cold starts are: Knative's take up to 10,000.
	queuePerWorker = 500
)

var errFull = errors.New("too many requests wait")

// pool is the workers and the queue in front of them, first come, first served.
type pool struct {
	free chan *alarm.Alarm // a worker each

	mu    sync.Mutex
	slow  float64 // how many times longer a request takes than it should
	state state
}

// state is what a pool has to do, and what it has done.
type state struct {
	Workers int `json:"workers"`
	// InFlight are all requests that are not answered, Queued those of them that have no
	// worker.
	InFlight int `json:"in_flight"`
	Queued   int `json:"queued"`
	// Served counts the requests that are answered, and the times are their sums: Service
	// with a worker, Sojourn also before, both in seconds.
	Served  int     `json:"served"`
	Service float64 `json:"service_s"`
	Sojourn float64 `json:"sojourn_s"`
}

func newPool(workers int) (*pool, error) {
	p := &pool{free: make(chan *alarm.Alarm, workers), slow: 1, state: state{Workers: workers}}
	for range workers {
		a, err := alarm.New()
		if err != nil {
			p.close()
			return nil, err
		}
		p.free <- a
	}
	return p, nil
}

// close takes the workers away; nobody may hold one.
func (p *pool) close() {
	close(p.free)
	for a := range p.free {
		_ = a.Close() // nothing is left of it either way
	}
}

// duration is what request n takes: always the same, whichever node it comes to.
func duration(n uint64) time.Duration {
	return shortest + time.Duration(rand.New(rand.NewPCG(n, 0)).Int64N(int64(longest-shortest)))
}

// hold holds a worker for d, times the slowness, when one is free. Whether the caller is
// still there it does not look, as most functions do not. It returns the state after it, and
// how long it held the worker.
func (p *pool) hold(d time.Duration) (after state, service time.Duration, err error) {
	began := time.Now()
	p.mu.Lock()
	if p.state.Queued >= queuePerWorker*p.state.Workers {
		defer p.mu.Unlock()
		return p.state, 0, errFull
	}
	p.state.InFlight++
	p.state.Queued++
	p.mu.Unlock()

	worker := <-p.free
	p.mu.Lock()
	p.state.Queued--
	d = time.Duration(float64(d) * p.slow)
	p.mu.Unlock()

	started := time.Now()
	err = worker.Sleep(d)
	service = time.Since(started)
	p.free <- worker

	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.InFlight--
	p.state.Served++
	p.state.Service += service.Seconds()
	p.state.Sojourn += time.Since(began).Seconds()
	return p.state, service, err
}

// setSlow has requests that begin from now on take so many times longer.
func (p *pool) setSlow(factor float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = factor
}

func (p *pool) current() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
