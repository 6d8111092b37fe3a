package coldrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// requestTimeout is many times what the slowest request of the demo takes.
	requestTimeout = 2 * time.Minute
	// coldTimeout: the idle window, the gateways' confirmation and the drain take 4 s;
	// Knative's autoscaler and the end of its pods up to a minute.
	coldTimeout = 2 * time.Minute
	// traceTimeout: spans leave their processes within a second of their end.
	traceTimeout = 15 * time.Second
)

// Request is one cold request as it was measured.
type Request struct {
	Trace  trace.Trace
	Total  time.Duration // by the client
	Phases trace.Phases
	// What the function says of itself in Server-Timing. What a relayed function without
	// Headstart does not say counts as Phases.Beta: the cold start with all of its
	// scheduling, as there is nobody to tell the two apart.
	Input, Exec time.Duration

	// Downloaded are the bytes that came over the link meanwhile, if Run.Downloaded tells.
	Downloaded uint64

	answer []byte
	origin string // body, file or store
}

// Result is one case, all repetitions.
type Result struct {
	Case
	Off, On []Request
	Again   []Request // for what the node has by then, with Headstart
	Wrong   int       // answers
}

// World is where the functions run.
type World interface {
	// Request returns a request to the function through the gateway.
	Request(ctx context.Context, method, function string) (*http.Request, error)
	Status(ctx context.Context) (admin.Status, error)
	Trace(ctx context.Context, id string) (trace.Trace, error)
}

// Run is how cold requests are measured.
type Run struct {
	World       World
	Repetitions int
	// Bucket is where the inputs are.
	Bucket   string
	Progress func(string)
	// Cold is nil when the function has no instance. Nil: as Status says.
	Cold func(ctx context.Context, function string) error
	// Downloaded is how many bytes have come over the link to the functions. Nil: nobody knows.
	Downloaded func() (uint64, error)
}

// Measure sends the cold requests: off and on in alternation, the cases in turn.
func (run Run) Measure(ctx context.Context, cases []Case) ([]Result, error) {
	results := make([]Result, len(cases))
	for i, c := range cases {
		results[i].Case = c
	}
	for n := range run.Repetitions {
		for i := range results {
			r := &results[i]
			run.Progress(fmt.Sprintf("cold requests, round %d of %d: %s", n+1, run.Repetitions, r.Label))
			c := r.Case
			if len(c.Again) > 0 {
				c.Object = c.Again[n]
			}
			off, err := run.cold(ctx, c, false)
			if err != nil {
				return nil, fmt.Errorf("%s, Headstart off: %w", r.Label, err)
			}
			on, err := run.cold(ctx, c, true)
			if err != nil {
				return nil, fmt.Errorf("%s, Headstart on: %w", r.Label, err)
			}
			r.Off, r.On = append(r.Off, off), append(r.On, on)
			run.judge(r, off, on)
		}
	}
	// Last, so that what comes first is as it is without what comes again.
	for i := range results {
		r := &results[i]
		for _, object := range r.Case.Again {
			run.Progress("cold requests for the same objects again: " + r.Label)
			c := r.Case
			c.Object = object
			again, err := run.cold(ctx, c, true)
			if err != nil {
				return nil, fmt.Errorf("%s, again: %w", r.Label, err)
			}
			r.Again = append(r.Again, again)
			run.judge(r, again)
		}
	}
	return results, nil
}

// judge counts the answers that are wrong.
func (run Run) judge(r *Result, requests ...Request) {
	for _, got := range requests {
		err := r.check(got.answer)
		if err == nil && !bytes.Equal(got.answer, r.Off[0].answer) {
			err = errors.New("it differs from the first one")
		}
		if err != nil {
			run.Progress(fmt.Sprintf("WRONG answer to %s: %v", r.Label, err))
			r.Wrong++
		}
	}
}

// cold waits until the function has no instance, sends one request and fetches its
// trace.
func (run Run) cold(ctx context.Context, c Case, on bool) (Request, error) {
	function, origin := c.Off, "store"
	if on {
		function, origin = c.On, "body"
	}
	if err := run.AwaitCold(ctx, function); err != nil {
		return Request{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := run.World.Request(ctx, http.MethodPost, function)
	if err != nil {
		return Request{}, err
	}
	req.Header.Set("x-bucket", run.Bucket)
	req.Header.Set("x-key", c.Object)
	downloaded := run.Downloaded
	if downloaded == nil {
		downloaded = func() (uint64, error) { return 0, nil }
	}
	before, err := downloaded()
	if err != nil {
		return Request{}, err
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Request{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Request{}, err
	}
	r := Request{answer: body, Total: time.Since(began)}
	if r.Downloaded, err = downloaded(); err != nil {
		return Request{}, err
	}
	r.Downloaded -= before
	if resp.StatusCode != http.StatusOK {
		return Request{}, fmt.Errorf("%s: %s", resp.Status, body)
	}
	if r.Input, r.Exec, r.origin, err = ServerTiming(resp.Header.Get("Server-Timing")); err != nil {
		return Request{}, err
	}
	if r.origin != origin {
		return Request{}, fmt.Errorf("the function took its input from its %s, not from its %s", r.origin, origin)
	}
	id := resp.Header.Get(filterapi.HeaderRequest)
	if c.Relayed && !on {
		if id != "" {
			return Request{}, fmt.Errorf("request %s should go its own way, and Headstart had a part in it", id)
		}
		r.Phases = trace.Phases{Beta: r.Total - r.Input - r.Exec, Gamma: r.Exec, Total: r.Total}
		return r, nil
	}
	r.Trace, r.Phases, err = run.AwaitTrace(ctx, id, on)
	return r, err
}

// AwaitCold waits until the function has no instance.
func (run Run) AwaitCold(ctx context.Context, function string) error {
	return testbed.Poll(ctx, coldTimeout, func(ctx context.Context) error {
		if run.Cold != nil {
			return run.Cold(ctx, function)
		}
		s, err := run.World.Status(ctx)
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

// AwaitTrace returns the request's trace and its phases once the gateway's span, which ends
// last, and all others that it should have are there. fetched tells whether the input's way
// is one of them.
func (run Run) AwaitTrace(ctx context.Context, id string, fetched bool) (t trace.Trace, p trace.Phases, err error) {
	err = testbed.Poll(ctx, traceTimeout, func(ctx context.Context) error {
		if t, err = run.World.Trace(ctx, id); err != nil {
			return err
		}
		if _, ok := t.Gateway(); !ok {
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

// ServerTiming reads a sample function's Server-Timing header (W3C Server Timing).
func ServerTiming(h string) (input, exec time.Duration, origin string, err error) {
	m := timing.FindStringSubmatch(h)
	if m == nil {
		return 0, 0, "", fmt.Errorf("the function's Server-Timing is %q", h)
	}
	in, err1 := strconv.ParseFloat(m[1], 64)
	ex, err2 := strconv.ParseFloat(m[3], 64)
	ms := float64(time.Millisecond)
	return time.Duration(in * ms), time.Duration(ex * ms), m[2], errors.Join(err1, err2)
}
