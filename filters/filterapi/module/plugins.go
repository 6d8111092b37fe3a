package module

import "slices"

// Name is in Envoy's admin interface and statistics, and what Envoy asks for the filters by.
const Name = "headstart.filters"

// may is what the filters hear of and ask for. A callback that does nothing costs as much as one that does
// something, for each part of a body.
var may = slices.Concat(callbacks, routeCalls, daemonCalls, prefetchCalls, goRuntime)

var (
	// callbacks are what the filters hear of. No part of a body is among them.
	callbacks = []string{"proxy_on_memory_allocate", "proxy_on_vm_start", "proxy_on_configure", "proxy_on_context_create", "proxy_on_tick",
		"proxy_on_request_headers", "proxy_on_response_headers", "proxy_on_http_call_response", "proxy_on_log", "proxy_on_done", "proxy_on_delete"}
	// routeCalls, daemonCalls and prefetchCalls are what they ask Envoy.
	routeCalls = []string{"proxy_log", "proxy_get_buffer_bytes", "proxy_get_property", "proxy_get_header_map_value",
		"proxy_replace_header_map_value", "proxy_get_shared_data", "proxy_set_shared_data", "proxy_define_metric", "proxy_increment_metric"}
	daemonCalls   = []string{"proxy_http_call", "proxy_get_header_map_pairs", "proxy_set_effective_context", "proxy_set_tick_period_milliseconds"}
	prefetchCalls = []string{"proxy_send_local_response"}
	// goRuntime is what Go's asks the system (WASI).
	goRuntime = []string{"args_get", "args_sizes_get", "clock_time_get", "environ_get", "environ_sizes_get", "fd_close", "fd_fdstat_get",
		"fd_fdstat_set_flags", "fd_prestat_dir_name", "fd_prestat_get", "fd_read", "fd_seek", "fd_write", "path_open", "poll_oneoff", "proc_exit", "random_get", "sched_yield"}
)
