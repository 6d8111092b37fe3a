// Package history reads what a Prometheus server has kept.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
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
	// stepLeast is as often as most servers ask for metrics.
	stepLeast = 15 * time.Second
	// explanationMost is how much of an answer that is no answer an error shows, in bytes.
	explanationMost = 300
)

// Window is the time that is looked at, at its beginning and after each step.
type Window struct {
	From, To time.Time
	Step     time.Duration
}

// Last is the window that ends now, with the finest steps that Prometheus answers for.
func Last(since time.Duration, now time.Time) Window {
	step := max(stepLeast, (since/stepsMost).Truncate(time.Second)+time.Second)
	n := max(1, since/step)
	return Window{From: now.Add(-n * step), To: now, Step: step}
}

// Length is how long the window is.
func (w Window) Length() time.Duration { return w.To.Sub(w.From) }

// points are how many values a series has.
func (w Window) points() int { return int(w.Length()/w.Step) + 1 }

// Series is what a metric was at the window's points; NaN where nothing is known.
type Series struct {
	Labels map[string]string
	Values []float64
}

// Server is a Prometheus server, or one that answers like it.
type Server struct {
	api     promv1.API
	address string
}

// New returns the server at the address, which is reached by the transport.
func New(address string, transport http.RoundTripper) (*Server, error) {
	c, err := promapi.NewClient(promapi.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("the address %q: %w", address, err)
	}
	return &Server{promv1.NewAPI(c), address}, nil
}

// Range evaluates the expression at the window's points.
func (s *Server) Range(ctx context.Context, expr string, w Window) ([]Series, error) {
	answer, _, _, err := s.api.QueryRange(ctx, expr, promv1.Range{Start: w.From, End: w.To, Step: w.Step})
	if err != nil {
		return nil, s.explain(err)
	}
	matrix, ok := answer.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("Prometheus at %s answers a range with a %s", s.address, answer.Type()) //nolint:staticcheck // a name
	}
	all := make([]Series, 0, len(matrix))
	for _, stream := range matrix {
		one := Series{Labels: map[string]string{}, Values: make([]float64, w.points())}
		for name, value := range stream.Metric {
			one.Labels[string(name)] = string(value)
		}
		for i := range one.Values {
			one.Values[i] = math.NaN()
		}
		for _, v := range stream.Values {
			if i := int(v.Timestamp.Time().Sub(w.From) / w.Step); i >= 0 && i < len(one.Values) {
				one.Values[i] = float64(v.Value)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// Known is the part of the window that the server has something of: it may be younger, or keep less.
func (s *Server) Known(ctx context.Context, w Window) (Window, error) {
	all, err := s.Range(ctx, "count(up)", w)
	if err != nil {
		return w, err
	}
	for _, series := range all {
		for i, v := range series.Values {
			if !math.IsNaN(v) && i+1 < len(series.Values) {
				w.From = w.From.Add(time.Duration(i) * w.Step)
				return w, nil
			}
		}
	}
	return w, fmt.Errorf("Prometheus at %s has nothing of the last %s: is it the one that watches this cluster?", //nolint:staticcheck // a name
		s.address, model.Duration(w.Length().Round(time.Second)))
}

// explain says what somebody between has answered.
func (s *Server) explain(err error) error {
	var e *promv1.Error
	if !errors.As(err, &e) || e.Detail == "" {
		return fmt.Errorf("asking Prometheus at %s: %w", s.address, err)
	}
	detail := e.Detail
	var status metav1.Status
	if json.Unmarshal([]byte(detail), &status) == nil && status.Message != "" { // the API server's
		detail = status.Message
	}
	return fmt.Errorf("asking Prometheus at %s: %w: %s", s.address, err, strings.TrimSpace(detail[:min(len(detail), explanationMost)]))
}

// Growth is by how much a counter, or a sum of counters, grew before each point. A counter that comes up begins at zero, unless
// the window begins with it. A fall is none: somebody who counted has ended, and what came since the last point is lost.
func Growth(values []float64) []float64 {
	grown := make([]float64, len(values))
	last := 0.0
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		if i > 0 {
			grown[i] = max(0, v-last)
		}
		last = v
	}
	return grown
}

// Sum is the sum of values.
func Sum(values []float64) (sum float64) {
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}
