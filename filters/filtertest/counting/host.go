package counting

import (
	"context"
	"encoding/binary"

	"github.com/tetratelabs/wazero/api"
)

// What a function of the host returns.
const (
	ok            = 0
	notFound      = 1
	casMismatch   = 8
	unimplemented = 12
)

// bodyOfAnswer is the buffer of what the module's own request was answered; the other one that is asked for
// is the configuration.
const bodyOfAnswer = 4

// requestHeaders is the map of them; the other one that is asked for is that of the response's.
const requestHeaders = 0

// host is the proxy's side of the border.
type host struct {
	configuration string
	exchange      *Exchange
	shared        map[string]value
	sets          uint32
	crossed       map[string]int
	// calls are how many requests the module has made itself; the last one's answer is in the others.
	calls           uint32
	headersOfAnswer [][2]string
	body            string
}

// value is shared data, and its number.
type value struct {
	text string
	cas  uint32
}

func (h *host) function(name string) api.GoModuleFunc {
	do := map[string]func(ctx context.Context, m memory, a []uint64) uint64{
		"proxy_get_buffer_bytes":             h.getBuffer,
		"proxy_get_property":                 h.getProperty,
		"proxy_get_header_map_value":         h.getHeader,
		"proxy_replace_header_map_value":     h.replaceHeader,
		"proxy_get_shared_data":              h.getShared,
		"proxy_set_shared_data":              h.setShared,
		"proxy_http_call":                    h.callOut,
		"proxy_get_header_map_pairs":         h.getPairs,
		"proxy_set_effective_context":        done,
		"proxy_set_tick_period_milliseconds": done,
	}[name]
	return func(ctx context.Context, module api.Module, stack []uint64) {
		h.crossed[name]++
		if do == nil {
			stack[0] = unimplemented
			return
		}
		stack[0] = do(ctx, memory{module, h}, stack)
	}
}

func (h *host) getBuffer(ctx context.Context, m memory, a []uint64) uint64 {
	text := h.configuration
	if uint32(a[0]) == bodyOfAnswer {
		text = h.body
	}
	m.give(ctx, text, a[3], a[4])
	return ok
}

// done is for what the counting proxy need not do: its owner says when it ticks.
func done(context.Context, memory, []uint64) uint64 { return ok }

func (h *host) callOut(_ context.Context, m memory, a []uint64) uint64 {
	h.calls++
	m.number(a[9], h.calls)
	return ok
}

// getPairs are the answer's, as the ABI writes them: how many, their lengths, and the texts, each with a zero.
func (h *host) getPairs(ctx context.Context, m memory, a []uint64) uint64 {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(h.headersOfAnswer)))
	var texts []byte
	for _, pair := range h.headersOfAnswer {
		for _, text := range pair {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
			texts = append(append(texts, text...), 0)
		}
	}
	m.give(ctx, string(append(b, texts...)), a[1], a[2])
	return ok
}

func (h *host) getProperty(ctx context.Context, m memory, a []uint64) uint64 {
	return m.find(ctx, h.exchange.Properties, m.text(a[0], a[1]), a[2], a[3])
}

func (h *host) headers(kind uint64) map[string]string {
	if uint32(kind) == requestHeaders {
		return h.exchange.Request
	}
	return h.exchange.Response
}

func (h *host) getHeader(ctx context.Context, m memory, a []uint64) uint64 {
	return m.find(ctx, h.headers(a[0]), m.text(a[1], a[2]), a[3], a[4])
}

func (h *host) replaceHeader(_ context.Context, m memory, a []uint64) uint64 {
	h.headers(a[0])[m.text(a[1], a[2])] = m.text(a[3], a[4])
	return ok
}

func (h *host) getShared(ctx context.Context, m memory, a []uint64) uint64 {
	v, there := h.shared[m.text(a[0], a[1])]
	if !there {
		return notFound
	}
	m.give(ctx, v.text, a[2], a[3])
	m.number(a[4], v.cas)
	return ok
}

// setShared numbers all that is set, of whatever name, as Envoy does.
func (h *host) setShared(_ context.Context, m memory, a []uint64) uint64 {
	name := m.text(a[0], a[1])
	if before, there := h.shared[name]; there && uint32(a[4]) != 0 && uint32(a[4]) != before.cas {
		return casMismatch
	}
	h.sets++
	h.shared[name] = value{m.text(a[2], a[3]), h.sets}
	return ok
}

// memory is the module's.
type memory struct {
	module api.Module
	host   *host
}

func (m memory) text(at, length uint64) string {
	b, there := m.module.Memory().Read(uint32(at), uint32(length))
	if !there {
		panic("beyond the module's memory")
	}
	return string(b)
}

func (m memory) number(at uint64, n uint32) {
	if !m.module.Memory().WriteUint32Le(uint32(at), n) {
		panic("beyond the module's memory")
	}
}

func (m memory) find(ctx context.Context, in map[string]string, name string, at, length uint64) uint64 {
	text, there := in[name]
	if !there {
		return notFound
	}
	m.give(ctx, text, at, length)
	return ok
}

// give has the module allocate memory for a text, unless it is empty.
func (m memory) give(ctx context.Context, text string, at, length uint64) {
	if text == "" {
		m.number(at, 0)
		m.number(length, 0)
		return
	}
	m.host.crossed[allocate]++
	to, err := m.module.ExportedFunction(allocate).Call(ctx, uint64(len(text)))
	if err != nil {
		panic(err)
	}
	if !m.module.Memory().WriteString(uint32(to[0]), text) {
		panic("beyond the module's memory")
	}
	m.number(at, uint32(to[0]))
	m.number(length, uint32(len(text)))
}
