package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// loadReport is ORCA's header, in the format for people: name=value, separated by
	// commas.
	loadReport = "Endpoint-Load-Metrics"
	// nameHeader says who answered.
	nameHeader = "X-Worker"
	// slowest is the largest factor that it can be made slower by.
	slowest = 1000
)

// newHandler serves the function:
//
//	GET  /?n=17          holds a worker, for as long as the number says
//	GET  /healthz        holds none
//	GET  /state          what it has to do and has done, as JSON
//	POST /slow?factor=10 has requests take longer, until another factor comes
func newHandler(p *pool, name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseUint(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, "n is not a number", http.StatusBadRequest)
			return
		}
		s, service, err := p.hold(duration(n))
		w.Header().Set(loadReport, s.report(service))
		w.Header().Set(nameHeader, name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.current()) // the caller has gone
	})
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		factor, err := strconv.ParseFloat(r.FormValue("factor"), 64)
		if err != nil || !(factor > 0 && factor <= slowest) {
			http.Error(w, fmt.Sprintf("factor is not a number above 0 up to %d", slowest), http.StatusBadRequest)
			return
		}
		p.setSlow(factor)
	})
	return mux
}

// report is the load as ORCA says it (docs/reference/headers.md), after a request that has
// held its worker for so long.
func (s state) report(service time.Duration) string {
	return fmt.Sprintf("TEXT application_utilization=%.3f, named_metrics.in_flight=%d, named_metrics.capacity=%d, named_metrics.service_time=%.6f",
		float64(s.InFlight)/float64(s.Workers), s.InFlight, s.Workers, service.Seconds())
}
