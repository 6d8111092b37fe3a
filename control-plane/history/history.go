// Package history reads what a Prometheus server has kept.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// stepsMost is just below what Prometheus answers with: 11,000 points of a series.
	stepsMost = 10_900
	// stepLeast is as often as most servers scrape.
	stepLeast = 15 * time.Second
	// explanationMost is how much of an error's body is shown, in bytes.
	explanationMost = 300
	// scrapes is over how long the interval between scrapes is looked at.
	scrapes = "10m"
)

// tooMany is how Prometheus refuses a query for --query.max-samples.
const tooMany = "too many samples"

// Window is the time that is looked at, at its beginning and after each step.
type Window struct {
	From, To time.Time
	Step     time.Duration
}

// Last is the window that ends now. Its steps are as short as Prometheus answers for, and no shorter than least.
func Last(since, least time.Duration, now time.Time) Window {
	step := max(stepLeast, least.Truncate(time.Second), (since/stepsMost).Truncate(time.Second)+time.Second)
	now = now.Truncate(time.Second) // Prometheus knows milliseconds, and rounds
	return Window{From: now.Add(-max(1, since/step) * step), To: now, Step: step}
}

// Length is how long the window is.
func (w Window) Length() time.Duration { return w.To.Sub(w.From) }

// Points are how many values a series has.
func (w Window) Points() int { return int(w.Length()/w.Step) + 1 }

// Index is the first point at or after the time.
func (w Window) Index(t time.Time) int {
	if !t.After(w.From) {
		return 0
	}
	return int((t.Sub(w.From) + w.Step - 1) / w.Step)
}

// Series is what a metric was at the window's points; NaN where nothing is known.
type Series struct {
	Labels map[string]string
	Values []float64
}

// Past is what a Prometheus server, or one that answers like it, knows of a window.
type Past struct {
	api    promv1.API
	name   string
	Window Window
}

// Open returns the past that the server at the address knows, which may be less than what is asked for: it may be younger, or keep
// less. The server is reached by the transport.
func Open(ctx context.Context, address string, transport http.RoundTripper, since time.Duration, now time.Time) (*Past, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("the address of Prometheus: %w", err)
	}
	c, err := promapi.NewClient(promapi.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", u.Redacted(), err)
	}
	p := &Past{api: promv1.NewAPI(c), name: "Prometheus at " + u.Redacted()}
	interval, err := p.interval(ctx, now)
	if err != nil {
		return nil, err
	}
	p.Window = Last(since, interval, now)
	up, err := p.Range(ctx, "count(up)")
	if err != nil {
		return nil, err
	}
	for _, series := range up {
		for i, v := range series.Values {
			if !math.IsNaN(v) && i+1 < len(series.Values) {
				p.Window.From = p.Window.From.Add(time.Duration(i) * p.Window.Step)
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has nothing of the last %s: is it the one that watches this cluster?", p.name, model.Duration(p.Window.Length()))
}

// interval is the time between two scrapes; 0: not known.
func (p *Past) interval(ctx context.Context, now time.Time) (time.Duration, error) {
	answer, _, _, err := p.api.Query(ctx, "600 / avg(count_over_time(up["+scrapes+"]))", now)
	if err != nil {
		return 0, p.explain(err)
	}
	if v, ok := answer.(model.Vector); ok && len(v) == 1 && !math.IsInf(float64(v[0].Value), 0) {
		return time.Duration(float64(v[0].Value) * float64(time.Second)), nil
	}
	return 0, nil
}

// Range evaluates the expression at the window's points.
func (p *Past) Range(ctx context.Context, expr string) ([]Series, error) {
	all := map[model.Fingerprint]*Series{}
	if err := p.rangeInto(ctx, expr, 0, p.Window.Points()-1, all); err != nil {
		return nil, err
	}
	list := make([]Series, 0, len(all))
	for _, s := range all {
		list = append(list, *s)
	}
	return list, nil
}

// rangeInto asks for the points from first to last, in halves if that is too much at once.
func (p *Past) rangeInto(ctx context.Context, expr string, first, last int, all map[model.Fingerprint]*Series) error {
	at := func(i int) time.Time { return p.Window.From.Add(time.Duration(i) * p.Window.Step) }
	answer, _, _, err := p.api.QueryRange(ctx, expr, promv1.Range{Start: at(first), End: at(last), Step: p.Window.Step})
	if err != nil && strings.Contains(err.Error(), tooMany) && last > first {
		middle := first + (last-first)/2
		if err := p.rangeInto(ctx, expr, first, middle, all); err != nil {
			return err
		}
		return p.rangeInto(ctx, expr, middle+1, last, all)
	}
	if err != nil && strings.Contains(err.Error(), tooMany) {
		return fmt.Errorf("%w: shorten --since, or name a namespace by -n", p.explain(err))
	}
	if err != nil {
		return p.explain(err)
	}
	matrix, ok := answer.(model.Matrix)
	if !ok {
		return fmt.Errorf("%s answers a range with a %s", p.name, answer.Type())
	}
	for _, stream := range matrix {
		one := all[stream.Metric.Fingerprint()]
		if one == nil {
			one = p.unknown(stream.Metric)
			all[stream.Metric.Fingerprint()] = one
		}
		for _, v := range stream.Values {
			if i := p.Window.Index(v.Timestamp.Time()); i < len(one.Values) {
				one.Values[i] = float64(v.Value)
			}
		}
	}
	return nil
}

func (p *Past) unknown(labels model.Metric) *Series {
	s := &Series{Labels: map[string]string{}, Values: make([]float64, p.Window.Points())}
	for name, value := range labels {
		s.Labels[string(name)] = string(value)
	}
	for i := range s.Values {
		s.Values[i] = math.NaN()
	}
	return s
}

// Growth is by how much counters grew before each point, summed up by labels. Each counter is looked at by itself: one that has
// fallen has begun again, one that comes up has grown if its target was scraped before, and what a target counted while it was
// not scraped is not known.
func (p *Past) Growth(ctx context.Context, counter string, by ...string) ([]Series, error) {
	before := " offset " + model.Duration(p.Window.Step).String()
	return p.Range(ctx, fmt.Sprintf("sum by (%[1]s) ((%[2]s - %[2]s%[3]s >= 0) or (%[2]s < %[2]s%[3]s)"+
		" or ((%[2]s unless %[2]s%[3]s) and on (job, instance) (up%[3]s == 1)))", strings.Join(by, ", "), counter, before))
}

// Grown has the labels of the counters that have grown in the window, or come up in it. It asks for far less than Growth.
func (p *Past) Grown(ctx context.Context, counter string, by ...string) (all []map[string]string, err error) {
	length := fmt.Sprintf("%ds", int(p.Window.Length().Seconds()))
	answer, _, _, err := p.api.Query(ctx, fmt.Sprintf("count by (%[1]s) (increase(%[2]s[%[3]s]) > 0"+
		" or (last_over_time(%[2]s[%[3]s]) unless %[2]s offset %[3]s) > 0)", strings.Join(by, ", "), counter, length), p.Window.To)
	if err != nil {
		return nil, p.explain(err)
	}
	vector, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s answers a query with a %s", p.name, answer.Type())
	}
	for _, sample := range vector {
		labels := map[string]string{}
		for name, value := range sample.Metric {
			labels[string(name)] = string(value)
		}
		all = append(all, labels)
	}
	return all, nil
}

// explain adds the body of an error, which may be the API server's or a proxy's.
func (p *Past) explain(err error) error {
	var e *promv1.Error
	if !errors.As(err, &e) || e.Detail == "" {
		return fmt.Errorf("asking %s: %w", p.name, err)
	}
	detail := e.Detail
	var status metav1.Status
	if json.Unmarshal([]byte(detail), &status) == nil && status.Message != "" {
		detail = status.Message
	}
	return fmt.Errorf("asking %s: %w: %s", p.name, err, strings.TrimSpace(detail[:min(len(detail), explanationMost)]))
}

// Sum is the sum of the values that are known.
func Sum(values []float64) (sum float64) {
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}
