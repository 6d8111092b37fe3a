package advice

import (
	"context"
	"fmt"
	"math"

	"github.com/headstart-mesh/headstart/control-plane/history"
)

// History is what has been kept of metrics.
type History interface {
	// Range evaluates an expression at the points of the window.
	Range(ctx context.Context, expr string) ([]history.Series, error)
	// Grown has the labels of the counters that have grown in the window, or come up in it.
	Grown(ctx context.Context, counter string, by ...string) ([]map[string]string, error)
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

// requests is how Istio counts them.
const requests = "istio_requests_total"

type key struct{ namespace, name string }

// used is what the mesh says of a service.
type used struct {
	requests        []float64 // NaN where the mesh was not scraped
	total           float64
	bytes, duration float64 // of all requests; ms
	// callers are the workloads that requests came from, as far as either end tells. Istio calls what has no proxy unknown.
	callers map[key]bool
}

// read asks what the mesh has counted. A request is counted by both of its ends if both are in the mesh, so the highest count
// is used.
func read(ctx context.Context, h History, namespace string) (map[key]used, error) {
	only := ""
	if namespace != "" {
		only = fmt.Sprintf("{%s=%q}", labelNamespace, namespace)
	}
	scraped, err := h.Range(ctx, "count("+requests+")")
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
		take func(u *used, grown []float64)
	}{
		{requests, func(u *used, grown []float64) { u.requests, u.total = grown, history.Sum(grown) }},
		{"istio_request_bytes_sum", func(u *used, grown []float64) { u.bytes = history.Sum(grown) }},
		{"istio_request_duration_milliseconds_sum", func(u *used, grown []float64) { u.duration = history.Sum(grown) }},
	} {
		series, err := h.Growth(ctx, metric.name+only, labelNamespace, labelName, labelReporter)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			c := counter{key{s.Labels[labelNamespace], s.Labels[labelName]}, s.Labels[labelReporter]}
			if all[c] == nil {
				all[c] = &used{}
			}
			metric.take(all[c], s.Values)
		}
	}
	grown, err := h.Grown(ctx, requests+only, labelNamespace, labelName, labelCallerNamespace, labelCaller)
	if err != nil {
		return nil, err
	}
	callers := map[key]map[key]bool{}
	for _, labels := range grown {
		of := key{labels[labelNamespace], labels[labelName]}
		if callers[of] == nil {
			callers[of] = map[key]bool{}
		}
		if name := labels[labelCaller]; name != "" {
			callers[of][key{labels[labelCallerNamespace], name}] = true
		}
	}
	most := map[key]used{}
	for c, u := range all {
		if best := most[c.key]; u.total > best.total && len(scraped) > 0 {
			// Without a request a service has no series, also where the mesh was scraped.
			u.requests = known(u.requests, scraped[0].Values)
			u.callers = callers[c.key]
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
