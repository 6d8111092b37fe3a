// Package load sends requests at a constant rate, whatever becomes of them, and counts
// what is lost: an open loop, so that a stall of the system under test is seen by as many
// requests as would have come in that time.
package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// reasonsMost bounds the different failures that are kept.
const reasonsMost = 20

// Config is what is sent.
type Config struct {
	// Request makes the next request.
	Request func(ctx context.Context) (*http.Request, error)
	// Rate is in requests per second.
	Rate float64
	// Timeout is how long a request may take before it counts as lost.
	Timeout time.Duration
}

// Result is what became of it.
type Result struct {
	Sent, Lost int
	// Reasons counts the lost by what was wrong with them.
	Reasons map[string]int
	// Took are the durations of those that were answered, sorted.
	Took []time.Duration
}

// Quantile returns the q-th quantile of the durations, 0 if there are none.
func (r Result) Quantile(q float64) time.Duration {
	if len(r.Took) == 0 {
		return 0
	}
	return r.Took[min(int(q*float64(len(r.Took))), len(r.Took)-1)]
}

// Load is a running one.
type Load struct {
	config Config
	client *http.Client
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	result Result
}

// Start begins to send, until Stop.
func Start(ctx context.Context, c Config) *Load {
	ctx, stop := context.WithCancel(ctx)
	// As many clients do, each request takes a connection that may have been kept.
	l := &Load{config: c, stop: stop, result: Result{Reasons: map[string]int{}},
		client: &http.Client{Timeout: c.Timeout, Transport: &http.Transport{MaxIdleConnsPerHost: int(c.Rate) + 1}}}
	l.all.Go(func() { l.pace(ctx) })
	return l
}

// Stop ends the sending, waits for the answers under way, and returns the result.
func (l *Load) Stop() Result {
	l.stop()
	l.all.Wait()
	l.client.CloseIdleConnections()
	slices.Sort(l.result.Took)
	return l.result
}

// paceInterval is how often it is looked which requests are due: timers are not exact enough
// for one each at thousands a second.
const paceInterval = time.Millisecond

func (l *Load) pace(ctx context.Context) {
	tick := time.NewTicker(max(paceInterval, time.Duration(float64(time.Second)/l.config.Rate)))
	defer tick.Stop()
	// Requests under way outlive the pace: their answers count.
	requests := context.WithoutCancel(ctx)
	began := time.Now()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for due := int(time.Since(began).Seconds() * l.config.Rate); sent < due; sent++ {
				l.all.Go(func() { l.note(l.send(requests)) })
			}
		}
	}
}

func (l *Load) send(ctx context.Context) (time.Duration, error) {
	r, err := l.config.Request(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := l.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("the answer broke off: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return 0, fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return time.Since(began), nil
}

func (l *Load) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Sent++
	if err == nil {
		l.result.Took = append(l.result.Took, took)
		return
	}
	l.result.Lost++
	reason := err.Error()
	if _, known := l.result.Reasons[reason]; !known && len(l.result.Reasons) >= reasonsMost {
		reason = "others"
	}
	l.result.Reasons[reason]++
}
