package trace

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// What one span may take of the store's memory. Names, attributes and messages are
// partly what a client sent.
const (
	// valueLimit is the longest string, in bytes, that is kept of a name, a message or
	// an attribute.
	valueLimit = 1024
	// attributesLimit is the most that is kept of a span's attributes, in bytes; the
	// rest of the attributes is left out. Envoy's own take under 2 KiB.
	attributesLimit = 16 << 10
	// entryCost is what one attribute or list element takes besides its text, in bytes.
	entryCost = 48
	// spanCost is what a span takes besides its text, in bytes.
	spanCost = 384
	// nestingLimit is how deep lists and maps may lie in an attribute. The conventions
	// know lists of strings and nothing deeper.
	nestingLimit = 2

	traceIDBytes = 16 // W3C trace context, section 3.2.2.3
	spanIDBytes  = 8  // and 3.2.2.4
)

// spanOf converts one OTLP span. It returns the id of its trace and about how many
// bytes of memory it takes.
func spanOf(service string, p *tracepb.Span) (id string, s Span, size int, err error) {
	if !validID(p.GetTraceId(), traceIDBytes) || !validID(p.GetSpanId(), spanIDBytes) {
		return "", Span{}, 0, fmt.Errorf("trace id of %d bytes and span id of %d bytes: want %d and %d, not all zero", len(p.GetTraceId()), len(p.GetSpanId()), traceIDBytes, spanIDBytes)
	}
	start, end := p.GetStartTimeUnixNano(), p.GetEndTimeUnixNano()
	if start == 0 || start > math.MaxInt64 || end > math.MaxInt64 {
		return "", Span{}, 0, fmt.Errorf("start %d or end %d is no time", start, end)
	}
	end = max(end, start) // an unfinished span, or a clock that was set back
	b := budget{left: attributesLimit}
	s = Span{
		Name:       clip(p.GetName(), valueLimit),
		Service:    service,
		ID:         hex.EncodeToString(p.GetSpanId()),
		Start:      time.Unix(0, int64(start)).UTC(),
		End:        time.Unix(0, int64(end)).UTC(),
		DurationMS: float64(end-start) / float64(time.Millisecond),
		Attributes: b.attributes(p.GetAttributes(), 0),
		Status:     statusOf(p.GetStatus().GetCode()),
		Message:    clip(p.GetStatus().GetMessage(), valueLimit),
	}
	if validID(p.GetParentSpanId(), spanIDBytes) {
		s.Parent = hex.EncodeToString(p.GetParentSpanId())
	}
	size = spanCost + len(s.Name) + len(s.Message) + attributesLimit - b.left
	return hex.EncodeToString(p.GetTraceId()), s, size, nil
}

// serviceOf returns a resource's service.name.
func serviceOf(r *resourcepb.Resource) string {
	for _, kv := range r.GetAttributes() {
		if kv.GetKey() == "service.name" {
			return clip(kv.GetValue().GetStringValue(), valueLimit)
		}
	}
	return ""
}

func statusOf(code tracepb.Status_StatusCode) Status {
	switch code {
	case tracepb.Status_STATUS_CODE_OK:
		return OK
	case tracepb.Status_STATUS_CODE_ERROR:
		return Error
	default:
		return Unset
	}
}

func validID(id []byte, length int) bool {
	return len(id) == length && strings.Trim(string(id), "\x00") != ""
}

// budget is how many bytes a span's attributes may still take.
type budget struct{ left int }

func (b *budget) take(n int) bool {
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) attributes(list []*commonpb.KeyValue, depth int) map[string]any {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]any)
	for _, kv := range list {
		key := clip(kv.GetKey(), valueLimit)
		if _, ok := out[key]; ok {
			continue // keys are unique in OTLP: the first counts
		}
		if !b.take(entryCost + len(key)) {
			break
		}
		out[key] = b.value(kv.GetValue(), depth)
	}
	return out
}

// value returns v as what encoding/json can write, or nil for what is left out.
func (b *budget) value(v *commonpb.AnyValue, depth int) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return b.text(v.StringValue)
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		if math.IsNaN(v.DoubleValue) || math.IsInf(v.DoubleValue, 0) {
			return fmt.Sprint(v.DoubleValue) // JSON knows no such numbers
		}
		return v.DoubleValue
	case *commonpb.AnyValue_BytesValue:
		return b.text(hex.EncodeToString(v.BytesValue[:min(len(v.BytesValue), valueLimit/2)]))
	case *commonpb.AnyValue_ArrayValue:
		if depth == nestingLimit {
			return nil
		}
		list := []any{}
		for _, e := range v.ArrayValue.GetValues() {
			if !b.take(entryCost) {
				break
			}
			list = append(list, b.value(e, depth+1))
		}
		return list
	case *commonpb.AnyValue_KvlistValue:
		if depth == nestingLimit {
			return nil
		}
		return b.attributes(v.KvlistValue.GetValues(), depth+1)
	default:
		return nil
	}
}

func (b *budget) text(s string) any {
	s = clip(s, valueLimit)
	if !b.take(len(s)) {
		return nil
	}
	return s
}

// clip returns at most limit bytes of s, as valid UTF-8 and free of s's own memory.
func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for i := len(s) - 1; i >= 0 && len(s)-i < utf8.UTFMax; i-- {
			if utf8.RuneStart(s[i]) {
				if !utf8.FullRuneInString(s[i:]) {
					s = s[:i]
				}
				break
			}
		}
		s = strings.Clone(s)
	}
	return strings.ToValidUTF8(s, "")
}
