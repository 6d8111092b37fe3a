package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Paced is a load of equal requests at a constant rate over a fixed number of connections,
// each of which sends its share of them in turn. It costs a third of what Load does, which
// counts where the machine that is measured sends as well.
type Paced struct {
	// Address is host:port; Host and Path are of the request, a GET.
	Address, Host, Path string
	// Rate is in requests per second.
	Rate        float64
	Connections int
	Duration    time.Duration
	// Timeout is how long an answer may take. Then its connection has no further requests,
	// and those that it should have sent are lost.
	Timeout time.Duration
}

// Run connects, and then sends the load. A request's duration counts from when it was due, so
// that one that had to wait for the one before it tells of that, too.
func (p Paced) Run(ctx context.Context) Result {
	parts := make([]Result, p.Connections)
	var connected, all sync.WaitGroup
	connected.Add(p.Connections)
	begin := sync.OnceValue(time.Now)
	for n := range parts {
		all.Go(func() {
			conn, err := (&net.Dialer{Timeout: p.Timeout}).DialContext(ctx, "tcp", p.Address)
			connected.Done()
			connected.Wait()
			parts[n] = p.connection(ctx, n, conn, err, begin())
		})
	}
	all.Wait()
	sum := Result{Reasons: map[string]int{}}
	for _, r := range parts {
		sum.Sent, sum.Lost, sum.Took = sum.Sent+r.Sent, sum.Lost+r.Lost, append(sum.Took, r.Took...)
		for reason, n := range r.Reasons {
			sum.Reasons[reason] += n
		}
	}
	slices.Sort(sum.Took)
	return sum
}

// connection sends every Connections-th request, beginning with the n-th, over conn; all are
// lost if there is none because of err.
func (p Paced) connection(ctx context.Context, n int, conn net.Conn, err error, begin time.Time) Result {
	r := Result{Reasons: map[string]int{}}
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
	}
	due := func(k int) time.Duration {
		return time.Duration(float64(n+k*p.Connections) / p.Rate * float64(time.Second))
	}
	request := []byte("GET " + p.Path + " HTTP/1.1\r\nHost: " + p.Host + "\r\n\r\n")
	answers := bufio.NewReader(connOrNothing(conn))
	for k := 0; due(k) < p.Duration; k++ {
		at := begin.Add(due(k))
		if err == nil {
			select {
			case <-ctx.Done():
				return r
			case <-time.After(time.Until(at)):
			}
			err = p.exchange(conn, answers, request)
		}
		r.Sent++
		if err != nil {
			r.Lost++
			r.Reasons[err.Error()]++
			continue
		}
		r.Took = append(r.Took, time.Since(at))
	}
	return r
}

func connOrNothing(conn net.Conn) io.Reader {
	if conn == nil {
		return http.NoBody
	}
	return conn
}

func (p Paced) exchange(conn net.Conn, answers *bufio.Reader, request []byte) error {
	if err := conn.SetDeadline(time.Now().Add(p.Timeout)); err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	return nil
}
