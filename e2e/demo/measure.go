package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// requestTimeout is many times what the slowest request of the demo takes.
	requestTimeout = 2 * time.Minute
	// coldTimeout: the idle window, the gateways' confirmation and the drain take 4 s.
	coldTimeout = 30 * time.Second
	// traceTimeout: spans leave their processes within a second of their end.
	traceTimeout = 15 * time.Second
)

// request is one cold request as it was measured.
type request struct {
	answer []byte
	trace  trace.Trace
	total  time.Duration // by the client
	phases trace.Phases
	// What the function says of itself in Server-Timing.
	input, exec time.Duration
	origin      string // body, file or store
}

// result is one case, all repetitions.
type result struct {
	testCase
	off, on []request
	wrong   int
}

// measure sends the cold requests: off and on in alternation, the cases in turn.
func measure(ctx context.Context, bed *testbed.Bed, cases []testCase) ([]result, error) {
	results := make([]result, len(cases))
	for i, c := range cases {
		results[i].testCase = c
	}
	for n := range repetitions {
		for i := range results {
			r := &results[i]
			progress(fmt.Sprintf("cold requests, round %d of %d: %s", n+1, repetitions, r.label))
			off, err := cold(ctx, bed, r.testCase, false)
			if err != nil {
				return nil, fmt.Errorf("%s, Headstart off: %w", r.label, err)
			}
			on, err := cold(ctx, bed, r.testCase, true)
			if err != nil {
				return nil, fmt.Errorf("%s, Headstart on: %w", r.label, err)
			}
			r.off, r.on = append(r.off, off), append(r.on, on)
			for _, got := range []request{off, on} {
				err := check(r.testCase, got.answer)
				if err == nil && !bytes.Equal(got.answer, r.off[0].answer) {
					err = errors.New("it differs from the first one")
				}
				if err != nil {
					progress(fmt.Sprintf("WRONG answer to %s: %v", r.label, err))
					r.wrong++
				}
			}
		}
	}
	return results, nil
}

// cold waits until the function has no instance, sends one request and fetches its
// trace.
func cold(ctx context.Context, bed *testbed.Bed, c testCase, on bool) (request, error) {
	function, origin := c.off, "store"
	if on {
		function, origin = c.on, "body"
	}
	if err := awaitCold(ctx, bed, function); err != nil {
		return request{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := bed.Request(ctx, http.MethodPost, testbed.Edge, function, "/")
	if err != nil {
		return request{}, err
	}
	req.Header.Set("x-bucket", testbed.Bucket)
	req.Header.Set("x-key", c.object)
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return request{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return request{}, err
	}
	r := request{answer: body, total: time.Since(began)}
	if resp.StatusCode != http.StatusOK {
		return request{}, fmt.Errorf("%s: %s", resp.Status, body)
	}
	if r.input, r.exec, r.origin, err = serverTiming(resp.Header.Get("Server-Timing")); err != nil {
		return request{}, err
	}
	if r.origin != origin {
		return request{}, fmt.Errorf("the function took its input from its %s, not from its %s", r.origin, origin)
	}
	r.trace, r.phases, err = awaitTrace(ctx, bed, resp.Header.Get(filterapi.HeaderRequest), on)
	return r, err
}

func awaitCold(ctx context.Context, bed *testbed.Bed, function string) error {
	return testbed.Poll(ctx, coldTimeout, func(ctx context.Context) error {
		s, err := bed.Client().Status(ctx)
		if err != nil {
			return err
		}
		for _, f := range s.Functions {
			if f.Name == "default/"+function && len(f.Instances) > 0 {
				return fmt.Errorf("function %s is not cold: %s", function, f.Instances[0].Phase)
			}
		}
		return nil
	})
}

// awaitTrace returns the request's trace once the gateway's span, which ends last, and
// all others that it should have are there.
func awaitTrace(ctx context.Context, bed *testbed.Bed, id string, fetched bool) (t trace.Trace, p trace.Phases, err error) {
	err = testbed.Poll(ctx, traceTimeout, func(ctx context.Context) error {
		if t, err = bed.Client().Trace(ctx, id); err != nil {
			return err
		}
		if root, ok := t.Root(); !ok || root.Service != tracing.ServiceGateway {
			return errors.New("the gateway's span has not come yet")
		}
		p, err = t.Phases()
		if missing := (trace.MissingSpans)(nil); !fetched && errors.As(err, &missing) && len(missing) == 1 && missing[0] == tracing.Fetch {
			return nil
		}
		return err
	})
	return t, p, err
}

var timing = regexp.MustCompile(`^input;dur=([0-9.]+);desc="(\w+)", exec;dur=([0-9.]+)$`)

// serverTiming reads the sample function's Server-Timing header (W3C Server Timing).
func serverTiming(h string) (input, exec time.Duration, origin string, err error) {
	m := timing.FindStringSubmatch(h)
	if m == nil {
		return 0, 0, "", fmt.Errorf("the function's Server-Timing is %q", h)
	}
	in, err1 := strconv.ParseFloat(m[1], 64)
	ex, err2 := strconv.ParseFloat(m[3], 64)
	ms := float64(time.Millisecond)
	return time.Duration(in * ms), time.Duration(ex * ms), m[2], errors.Join(err1, err2)
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
