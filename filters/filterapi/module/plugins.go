package module

import "slices"

// Names of the filters.
const (
	PrefetchName = "headstart.prefetch"
	RouteName    = "headstart.route"
)

// Prefetch is filters/prefetch.
func Prefetch(path string) Module { return Module{Name: PrefetchName, Path: path} }

// Route is filters/route.
func Route(path string) Module {
	return Module{Name: RouteName, Path: path, may: slices.Concat(routeCallbacks, routeCalls, goRuntime)}
}

var (
	// routeCallbacks are what the route filter hears of. No part of a body is among them.
	routeCallbacks = []string{"proxy_on_memory_allocate", "proxy_on_vm_start", "proxy_on_configure",
		"proxy_on_context_create", "proxy_on_request_headers", "proxy_on_response_headers", "proxy_on_delete"}
	// routeCalls are what it asks Envoy. It opens no connections.
	routeCalls = []string{"proxy_log", "proxy_get_buffer_bytes", "proxy_get_property", "proxy_get_header_map_value",
		"proxy_replace_header_map_value", "proxy_get_shared_data", "proxy_set_shared_data", "proxy_define_metric", "proxy_increment_metric"}
	// goRuntime is what Go's asks the system (WASI).
	goRuntime = []string{"args_get", "args_sizes_get", "clock_time_get", "environ_get", "environ_sizes_get", "fd_close", "fd_fdstat_get",
		"fd_fdstat_set_flags", "fd_prestat_dir_name", "fd_prestat_get", "fd_read", "fd_seek", "fd_write", "path_open", "poll_oneoff", "proc_exit", "random_get", "sched_yield"}
)
