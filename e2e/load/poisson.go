package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/alarm"
)

// Poisson is a load of many users who know nothing of each other: requests come at random,
// at a rate, whatever becomes of those before (an open loop with exponentially distributed
// times between two). The same seed gives the same times.
type Poisson struct {
	// Address is host:port; Host is of the requests, which are GETs.
	Address, Host string
	// Path is that of the n-th request, from 0.
	Path func(n int) string
	// Rate is in requests per second.
	Rate     float64
	Seed     uint64
	Duration time.Duration
	// Timeout is how long an answer may take before its connection is given up.
	Timeout time.Duration
	// By is the header of an answer that says who gave it.
	By string
}

// Answer is what became of a request.
type Answer struct {
	// Due is when the request was to be sent, since the load began, and Took how long it was
	// from there to the end of its answer.
	Due, Took time.Duration
	// Late is how long after it was due it was sent: the machine had no time for it.
	Late time.Duration
	By   string
	// Lost says why there is no good answer; empty: there is.
	Lost string
}

// Run sends the load, waits for its answers, and returns what became of each request, in
// their order. It ends early, with an error, when ctx does.
func (p Poisson) Run(ctx context.Context) ([]Answer, error) {
	clock, err := alarm.New()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { clock.Close() })()
	defer clock.Close()
	s := &sender{Poisson: p, begin: time.Now()}
	answers := p.schedule()
	var all sync.WaitGroup
	for n := range answers {
		if err = clock.Sleep(time.Until(s.begin.Add(answers[n].Due))); err != nil {
			answers = answers[:n]
			break
		}
		all.Go(func() { s.send(ctx, n, &answers[n]) })
	}
	all.Wait()
	s.closeIdle()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return answers, err
}

// schedule says when requests are due.
func (p Poisson) schedule() []Answer {
	random := rand.New(rand.NewPCG(p.Seed, 0))
	var all []Answer
	for at := random.ExpFloat64(); at < p.Duration.Seconds()*p.Rate; at += random.ExpFloat64() {
		all = append(all, Answer{Due: time.Duration(at / p.Rate * float64(time.Second))})
	}
	return all
}

// sender has the connections, each of which has one request at a time.
type sender struct {
	Poisson
	begin time.Time

	mu   sync.Mutex
	idle []*connection
}

type connection struct {
	net.Conn
	answers *bufio.Reader
	since   time.Time // when it became idle
}

// idleMost is how long a connection may have been idle to get another request: less than
// any server or proxy keeps one, whose end would be taken for the request's.
const idleMost = 30 * time.Second

func (s *sender) send(ctx context.Context, n int, a *Answer) {
	due := s.begin.Add(a.Due)
	a.Late = time.Since(due)
	by, err := s.exchange(ctx, n, due.Add(s.Timeout))
	a.Took, a.By = time.Since(due), by
	if err != nil {
		a.Lost = err.Error()
	}
}

func (s *sender) exchange(ctx context.Context, n int, deadline time.Time) (by string, err error) {
	c, err := s.connect(ctx, deadline)
	if err != nil {
		return "", err
	}
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	by, again, err := s.converse(c, n)
	if !again {
		c.Close()
		return by, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.since = time.Now()
	s.idle = append(s.idle, c)
	return by, err
}

// converse also says whether the connection can have another request.
func (s *sender) converse(c *connection, n int) (by string, again bool, err error) {
	if _, err := io.WriteString(c, "GET "+s.Path(n)+" HTTP/1.1\r\nHost: "+s.Host+"\r\n\r\n"); err != nil {
		return "", false, err
	}
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	by = resp.Header.Get(s.By)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return by, false, fmt.Errorf("the answer broke off: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("the answer is %s", resp.Status)
	}
	return by, !resp.Close, err
}

func (s *sender) connect(ctx context.Context, deadline time.Time) (*connection, error) {
	if c := s.take(time.Now()); c != nil {
		return c, nil
	}
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, answers: bufio.NewReader(conn)}, nil
}

// take returns the connection that was used last, so that no more are open than are needed
// at once. If that was too long ago there is none, and all are closed.
func (s *sender) take(now time.Time) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	if c := s.idle[last]; now.Sub(c.since) < idleMost {
		s.idle = s.idle[:last]
		return c
	}
	s.closeIdle()
	return nil
}

func (s *sender) closeIdle() {
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
}
