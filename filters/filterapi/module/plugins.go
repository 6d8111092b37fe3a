package module

import (
	"slices"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Names of the filters.
const (
	PrefetchName = filterapi.PrefetchRoot
	RouteName    = filterapi.RouteRoot
)

// Prefetch is filters/prefetch, in the module that has all filters.
func Prefetch(path string) Module { return Module{Name: PrefetchName, Path: path, may: may} }

// Route is filters/route, in the same module.
func Route(path string) Module { return Module{Name: RouteName, Path: path, may: may} }

// may is the same for all filters: they share a machine, of which Envoy takes the first one's.
var may = slices.Concat(callbacks, routeCalls, prefetchCalls, goRuntime)

var (
	// callbacks are what the filters hear of. No part of a body is among them.
	callbacks = []string{"proxy_on_memory_allocate", "proxy_on_vm_start", "proxy_on_configure", "proxy_on_context_create",
		"proxy_on_request_headers", "proxy_on_response_headers", "proxy_on_http_call_response", "proxy_on_log", "proxy_on_done", "proxy_on_delete"}
	// routeCalls and prefetchCalls are what they ask Envoy.
	routeCalls = []string{"proxy_log", "proxy_get_buffer_bytes", "proxy_get_property", "proxy_get_header_map_value",
		"proxy_replace_header_map_value", "proxy_get_shared_data", "proxy_set_shared_data", "proxy_define_metric", "proxy_increment_metric"}
	prefetchCalls = []string{"proxy_get_header_map_pairs", "proxy_http_call", "proxy_send_local_response", "proxy_set_effective_context"}
	// goRuntime is what Go's asks the system (WASI).
	goRuntime = []string{"args_get", "args_sizes_get", "clock_time_get", "environ_get", "environ_sizes_get", "fd_close", "fd_fdstat_get",
		"fd_fdstat_set_flags", "fd_prestat_dir_name", "fd_prestat_get", "fd_read", "fd_seek", "fd_write", "path_open", "poll_oneoff", "proc_exit", "random_get", "sched_yield"}
)
