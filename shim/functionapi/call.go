package functionapi

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// ownNamespace stands for the caller's own in a call's path. No namespace can be named so.
const ownNamespace = "-"

// target is what a call is for.
type target struct {
	namespace, name string
	url             *url.URL // of the request that the function gets
}

var errTooManyCalls = problem.New(http.StatusServiceUnavailable, "TooManyCalls", "",
	fmt.Sprintf("the sandbox has %d calls under way already", CallsLimit))

// label is what namespaces and functions are named by (RFC 1123, section 2.1).
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parseTarget reads <name>, for a function of the caller's namespace, or
// <namespace>/<name>[/path]. The path stays escaped as it is.
func parseTarget(s, query, own string) (target, error) {
	t := target{namespace: own, name: s}
	path := ""
	if namespace, rest, ok := strings.Cut(s, "/"); ok {
		t.namespace, t.name = namespace, rest
		if end := strings.IndexByte(rest, '/'); end >= 0 {
			t.name, path = rest[:end], rest[end:]
		}
	}
	if t.namespace == ownNamespace {
		t.namespace = own
	}
	malformed := problem.New(http.StatusBadRequest, "CallMalformed", "", "a call is for "+callPath+"<name> or "+callPath+"<namespace>/<name>[/path]")
	if !label.MatchString(t.namespace) || !label.MatchString(t.name) {
		return t, malformed
	}
	if path == "" {
		path = "/"
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return t, malformed
	}
	t.url = &url.URL{Path: plain, RawPath: path, RawQuery: query}
	return t, nil
}

func (t target) function() string { return t.namespace + "/" + t.name }

// call has another function answer the request, as if a gateway had sent it.
func (h *handler) call(w http.ResponseWriter, r *http.Request, rest string) {
	m := h.server.config.Metrics
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	defer h.sandbox.calls.Add(-1)
	full := h.sandbox.calls.Add(1) > CallsLimit
	var function string // if it may be told
	t, err := parseTarget(rest, r.URL.RawQuery, h.sandbox.namespace)
	o := h.server.deliveries.origin(
		h.sandbox.id, r.Header.Get(filterapi.HeaderRequest), traceOf(propagation.HeaderCarrier(r.Header)),
	)
	ctx, span := tracer.Start(h.trace(r, o.traceparent), tracing.Call, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(tracing.Instance.String(h.sandbox.id)))
	defer span.End() // also when the answer breaks off
	var out *http.Request
	switch {
	case err != nil:
	case full:
		err = errTooManyCalls
	default:
		function = t.function()
		id := nodeapi.NewRequestID()
		span.SetAttributes(tracing.Function.String(function), tracing.Request.String(id))
		out, err = h.request(r.WithContext(ctx), id, t, o)
	}
	if err != nil {
		reason := h.refuse(w, err, function)
		span.SetStatus(codes.Error, reason)
		m.calls.WithLabelValues(reason).Inc()
		return
	}
	m.calls.WithLabelValues(resultOK).Inc()
	h.calls.ServeHTTP(w, out)
}

// request is what a gateway would have made of r.
func (h *handler) request(r *http.Request, id string, t target, o origin) (*http.Request, error) {
	f, err := h.server.config.Function(r.Context(), t.function())
	if f, err = call.Allowed(t.function(), f, err, h.sandbox.namespace); err != nil {
		return nil, err
	}
	claimed, _ := strconv.Atoi(r.Header.Get(filterapi.HeaderDepth)) // 0 if it is none
	return call.Request(r, id, f, t.url, call.By{Function: h.server.config.Caller(r.Context(), h.sandbox.id), Depth: max(o.depth, claimed)})
}
