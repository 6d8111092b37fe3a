package advice

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/history"
)

// History is what has been kept of metrics.
type History interface {
	// Range evaluates an expression at the points of the window.
	Range(ctx context.Context, expr string) ([]history.Series, error)
	// Growth is by how much counters grew before each point, summed up by labels.
	Growth(ctx context.Context, counter string, by ...string) ([]history.Series, error)
}

// Labels of Istio's standard metrics.
const (
	labelNamespace       = "destination_service_namespace"
	labelName            = "destination_service_name"
	labelReporter        = "reporter"
	labelCallerNamespace = "source_workload_namespace"
	labelCaller          = "source_workload"
)

// bySource is the reporter that is at the caller, and so knows it.
const bySource = "source"

type key struct{ namespace, name string }

// used is what the mesh says of a service.
type used struct {
	requests        []float64 // NaN where the mesh was not scraped
	total           float64
	bytes, duration float64 // of all requests; ms
	// callers are workloads with how many requests came from each, as far as the metrics tell. Istio calls what has no proxy unknown.
	callers map[key]float64
}

// add adds requests of a caller.
func (u *used) add(caller key, grown []float64) {
	if u.requests == nil {
		u.requests, u.callers = slices.Repeat([]float64{math.NaN()}, len(grown)), map[key]float64{}
	}
	for i, n := range grown {
		switch {
		case math.IsNaN(n):
		case math.IsNaN(u.requests[i]):
			u.requests[i] = n
		default:
			u.requests[i] += n
		}
	}
	came := history.Sum(grown)
	u.total += came
	if caller.name != "" {
		u.callers[caller] += came
	}
}

// read asks what the mesh has counted. A request is counted by both of its ends if both are in the mesh, so the highest count
// is used.
func read(ctx context.Context, h History, namespace string) (map[key]used, error) {
	only := ""
	if namespace != "" {
		only = fmt.Sprintf("{%s=%q}", labelNamespace, namespace)
	}
	scraped, err := h.Range(ctx, "count(istio_requests_total)")
	if err != nil {
		return nil, err
	}
	type counter struct {
		key
		reporter string
	}
	all := map[counter]*used{}
	for _, metric := range []struct {
		name string
		by   []string
		take func(u *used, s history.Series)
	}{
		{"istio_requests_total", []string{labelCallerNamespace, labelCaller},
			func(u *used, s history.Series) {
				u.add(key{s.Labels[labelCallerNamespace], s.Labels[labelCaller]}, s.Values)
			}},
		{"istio_request_bytes_sum", nil, func(u *used, s history.Series) { u.bytes = history.Sum(s.Values) }},
		{"istio_request_duration_milliseconds_sum", nil, func(u *used, s history.Series) { u.duration = history.Sum(s.Values) }},
	} {
		series, err := h.Growth(ctx, metric.name+only, append([]string{labelNamespace, labelName, labelReporter}, metric.by...)...)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			c := counter{key{s.Labels[labelNamespace], s.Labels[labelName]}, s.Labels[labelReporter]}
			if all[c] == nil {
				all[c] = &used{}
			}
			metric.take(all[c], s)
		}
	}
	most := map[key]used{}
	for c, u := range all {
		if best := most[c.key]; (u.total > best.total || u.total == best.total && c.reporter == bySource) && u.total > 0 && len(scraped) > 0 {
			// Without a request a service has no series, also where the mesh was scraped.
			u.requests = known(u.requests, scraped[0].Values)
			most[c.key] = *u
		}
	}
	return most, nil
}

// known has 0 where nothing grew, and NaN where nobody looked, at the point or at the one before.
func known(grown, scraped []float64) []float64 {
	out := make([]float64, len(grown))
	for i := range out {
		switch {
		case i == 0 || math.IsNaN(scraped[i]) || math.IsNaN(scraped[i-1]):
			out[i] = math.NaN()
		case !math.IsNaN(grown[i]):
			out[i] = grown[i]
		}
	}
	return out
}
