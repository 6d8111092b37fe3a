package counting

import (
	"context"

	"github.com/tetratelabs/wazero/api"
)

// What a function of the host returns.
const (
	ok            = 0
	notFound      = 1
	casMismatch   = 8
	unimplemented = 12
)

// requestHeaders is the map of them; the other one that is asked for is that of the response's.
const requestHeaders = 0

// host is the proxy's side of the border.
type host struct {
	root          string // the plugin's id
	configuration string
	exchange      *Exchange
	shared        map[string]value
	sets          uint32
	crossed       map[string]int
}

// value is shared data, and its number.
type value struct {
	text string
	cas  uint32
}

func (h *host) function(name string) api.GoModuleFunc {
	do := map[string]func(ctx context.Context, m memory, a []uint64) uint64{
		"proxy_get_buffer_bytes":         h.getBuffer,
		"proxy_get_property":             h.getProperty,
		"proxy_get_header_map_value":     h.getHeader,
		"proxy_replace_header_map_value": h.replaceHeader,
		"proxy_get_shared_data":          h.getShared,
		"proxy_set_shared_data":          h.setShared,
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
	m.give(ctx, h.configuration, a[3], a[4])
	return ok
}

func (h *host) getProperty(ctx context.Context, m memory, a []uint64) uint64 {
	properties := map[string]string{"plugin_root_id": h.root}
	if h.exchange != nil {
		properties = h.exchange.Properties
	}
	return m.find(ctx, properties, m.text(a[0], a[1]), a[2], a[3])
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
