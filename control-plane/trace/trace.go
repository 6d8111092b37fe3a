// Package trace is the embedded OTLP collector and everything that is read from it: a
// request's spans as a tree, as a waterfall for the terminal, and as the phases of the
// cold-start model.
package trace

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Trace is what is known of one trace. Its spans are in tree order: each after its
// parent, siblings by start. A span whose parent is not known counts as a root.
type Trace struct {
	ID    string `json:"traceId"`
	Spans []Span `json:"spans"`
	// Dropped counts the spans that came after the trace had its fill.
	Dropped int `json:"droppedSpans,omitempty"`
}

// Status is how a span ended.
type Status string

// The statuses of OpenTelemetry.
const (
	Unset Status = "unset"
	OK    Status = "ok"
	Error Status = "error"
)

// Span is one step of a request. Strings and attributes are limited in length but
// otherwise as they were sent: whoever prints them escapes them.
type Span struct {
	Name    string    `json:"name"`
	Service string    `json:"service"`
	ID      string    `json:"spanId"`
	Parent  string    `json:"parentSpanId,omitempty"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	// DurationMS is End minus Start in milliseconds.
	DurationMS float64        `json:"durationMs"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Status     Status         `json:"status"`
	Message    string         `json:"statusMessage,omitempty"`
	// Log is why the span's instance failed: the last lines of the function's log, or the
	// runtime's words. No sender has it, and it is not forwarded.
	Log []string `json:"log,omitempty"`
}

// Duration is End minus Start.
func (s Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// text returns a string attribute, empty if there is none.
func (s Span) text(key string) string {
	v, _ := s.Attributes[key].(string)
	return v
}

// requestID is what headstart.request holds. Envoy writes "-" for a header that is not
// there, and that must not count as one request.
var requestID = regexp.MustCompile("^[0-9a-f]{32}$")

// request returns the id of the request that the span says it belongs to.
func (s Span) request() string {
	for _, key := range []attribute.Key{tracing.Request, tracing.FaaSInvocationID} {
		if id := s.text(string(key)); requestID.MatchString(id) {
			return id
		}
	}
	return ""
}

// cold tells whether the span's request waited for a new instance.
func (s Span) cold() bool {
	cold, _ := s.Attributes[string(tracing.FaaSColdStart)].(bool)
	return cold
}

// New returns a trace of the spans, which it puts in tree order. A span id that comes
// twice counts once. Of spans that are each other's ancestors, which no honest sender
// makes, the earliest stands as a root.
func New(id string, spans []Span) Trace {
	byStart := slices.Clone(spans)
	slices.SortFunc(byStart, func(a, b Span) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	known := make(map[string]bool, len(byStart))
	children := make(map[string][]Span, len(byStart))
	for _, s := range byStart {
		known[s.ID] = true
		children[s.Parent] = append(children[s.Parent], s)
	}
	t := Trace{ID: id, Spans: make([]Span, 0, len(byStart))}
	placed := make(map[string]bool, len(byStart))
	var place func(s Span)
	place = func(s Span) {
		if placed[s.ID] {
			return
		}
		placed[s.ID] = true
		t.Spans = append(t.Spans, s)
		for _, c := range children[s.ID] {
			place(c)
		}
	}
	for _, s := range byStart {
		if !known[s.Parent] {
			place(s)
		}
	}
	for _, s := range byStart { // what is left hangs in a circle
		place(s)
	}
	return t
}

// Root is the span that stands for the whole request: the gateway's first, or, if the
// gateway's is not known, the first of all. It is false for a trace without spans.
func (t Trace) Root() (Span, bool) {
	if s, ok := t.Gateway(); ok {
		return s, true
	}
	if len(t.Spans) == 0 {
		return Span{}, false
	}
	return t.Spans[0], true
}

// Gateway is the gateway's first span, which arrives last; it is false before.
func (t Trace) Gateway() (Span, bool) {
	service := t.gatewayService()
	i := slices.IndexFunc(t.Spans, func(s Span) bool { return service != "" && s.Service == service })
	if i < 0 {
		return Span{}, false
	}
	return t.Spans[i], true
}

// AwaitsActivation says that the daemon's spans are still to come: the gateway's names a request
// that went by a daemon.
func (t Trace) AwaitsActivation() bool {
	return slices.ContainsFunc(t.Spans, func(s Span) bool { return s.request() != "" }) &&
		!slices.ContainsFunc(t.Spans, func(s Span) bool { return s.Name == tracing.Activation })
}

// gatewayService is the service.name of the trace's gateways, empty if they have no span. In
// a mesh each gateway has its workload's name; it is known by what the mesh's Telemetry adds
// to its spans, or as what called a daemon, or, if nobody of Headstart's took part, as the
// first of all.
func (t Trace) gatewayService() string {
	services := map[string]string{} // by span
	var first, called string
	for _, s := range t.Spans {
		switch {
		case s.Service == tracing.ServiceGateway, foreign(s.Service) && s.request() != "":
			return s.Service
		case foreign(s.Service):
			if _, below := services[s.Parent]; !below {
				first = cmp.Or(first, s.Service)
			}
			services[s.ID] = s.Service
		default:
			if s.Name == tracing.Activation {
				called = cmp.Or(called, services[s.Parent])
			}
			services[s.ID] = ""
		}
	}
	return cmp.Or(called, first)
}

// foreign says that the service is none of Headstart's own.
func foreign(service string) bool {
	switch service {
	case "", tracing.ServiceGateway, tracing.ServiceNode, tracing.ServiceControlPlane, tracing.ServiceShim:
		return false
	}
	return true
}

// Of returns the part of the trace that belongs to one request. A client may send
// several requests under one traceparent, and a function may call another: then it is
// the request's topmost span, the gateway's above it, and all below. A trace of one
// request is returned whole.
func (t Trace) Of(request string) Trace {
	top := slices.IndexFunc(t.Spans, func(s Span) bool { return s.request() == request })
	alone := !slices.ContainsFunc(t.Spans, func(s Span) bool { return s.request() != "" && s.request() != request })
	if top < 0 || alone {
		return t
	}
	// The gateway's span lacks the id when the daemon had to make it.
	gateway := t.gatewayService()
	for top > 0 {
		up := slices.IndexFunc(t.Spans[:top], func(s Span) bool { return s.ID == t.Spans[top].Parent })
		if up < 0 || t.Spans[up].Service != gateway || t.Spans[up].request() != "" {
			break
		}
		top = up
	}
	keep := map[string]bool{t.Spans[top].ID: true}
	part := Trace{ID: t.ID, Dropped: t.Dropped}
	for _, s := range t.Spans {
		if keep[s.ID] || keep[s.Parent] || s.request() == request {
			keep[s.ID] = true
			part.Spans = append(part.Spans, s)
		}
	}
	return part
}

// Merge puts together what several collectors have of one trace, that of the first.
func Merge(parts ...Trace) Trace {
	spans := map[string]Span{}
	dropped := 0
	for _, part := range parts {
		if part.ID != parts[0].ID {
			continue
		}
		for _, s := range part.Spans {
			spans[s.ID] = s
		}
		dropped += part.Dropped
	}
	t := New(parts[0].ID, slices.Collect(maps.Values(spans)))
	t.Dropped = dropped
	return t
}

// ended are the causes that an instance's last lines say more of.
var ended = []string{"FunctionExited", "FunctionFailed", "ReadyTimeout", "SandboxFailed"}

// Explain returns the trace with the last lines of each instance that failed, at the last of
// the spans that failed with it.
func (t Trace) Explain(lastLines func(instance string) []string) Trace {
	last := map[string]int{} // by instance
	for i, s := range t.Spans {
		if s.Status == Error && slices.Contains(ended, s.Message) {
			last[s.text(string(tracing.Instance))] = i
		}
	}
	if len(last) == 0 {
		return t
	}
	t.Spans = slices.Clone(t.Spans)
	for instance, i := range last {
		t.Spans[i].Log = lastLines(instance)
	}
	return t
}

// depths returns each span's distance from its root.
func (t Trace) depths() []int {
	depths := make([]int, len(t.Spans))
	byID := make(map[string]int, len(t.Spans))
	for i, s := range t.Spans {
		if d, ok := byID[s.Parent]; ok {
			depths[i] = d + 1
		}
		byID[s.ID] = depths[i]
	}
	return depths
}

// Summary is one line about a trace.
type Summary struct {
	ID         string    `json:"traceId"`
	Request    string    `json:"request,omitempty"`
	Function   string    `json:"function,omitempty"`
	Start      time.Time `json:"start"`
	DurationMS float64   `json:"durationMs"`
	Spans      int       `json:"spans"`
	ColdStart  bool      `json:"coldStart"`
	Status     Status    `json:"status"`
}

// Summary sums the trace up; the request is its first.
func (t Trace) Summary() Summary {
	root, _ := t.Root()
	sum := Summary{ID: t.ID, Start: root.Start, DurationMS: root.DurationMS, Spans: len(t.Spans), Status: root.Status}
	for _, s := range t.Spans {
		sum.Request = cmp.Or(sum.Request, s.request())
		sum.Function = cmp.Or(sum.Function, s.text(string(tracing.Function)), s.text(string(tracing.FaaSName)))
		sum.ColdStart = sum.ColdStart || s.cold()
		if s.Status == Error {
			sum.Status = Error
		}
	}
	return sum
}
