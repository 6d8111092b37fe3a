package connections

import (
	"maps"

	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/result"
)

// The parts.
const (
	TCP      = "tcp"
	Postgres = "postgres"
	Redis    = "redis"
	Sandbox  = "sandbox"
	Connect  = "connect"
	Hot      = "hot"
	Memory   = "memory"
	Drivers  = "drivers"
	Tenants  = "tenants"
)

// The summary's names.
const (
	InheritedP50          = "inherited_p50_ratio"
	InheritedP95          = "inherited_p95_ratio"
	InheritedVsFetch      = "inherited_vs_fetch"
	InheritedFar          = "inherited_50ms_vs_loopback"
	FirstQuery10          = "pg_first_query_ratio_10ms"
	FirstQuery50          = "pg_first_query_ratio_50ms"
	FirstQueryVsDirect    = "pg_first_query_vs_direct"
	FirstQueryVsPgBouncer = "pg_first_query_vs_pgbouncer"
	FirstCommand          = "redis_first_command_ratio_10ms"
	AheadExcess           = "ahead_excess_ms"
	ConnectVsLoopback     = "connect_vs_loopback"
	NonmatchingAdded      = "nonmatching_added_us"
	Lifetime10            = "lifetime_ratio_pg_10ms"
	Lifetime50            = "lifetime_ratio_pg_50ms"
	LifetimeLoopback      = "lifetime_ratio_loopback"
	HotSmall              = "hot_added_us_64b"
	HotLarge              = "hot_added_us_64k"
	HotVsPgBouncer        = "hot_vs_pgbouncer"
	DaemonMemory          = "daemon_kib_per_connection"
	CrossTenant           = "cross_tenant"
	Reused                = "reused"
	Leaks                 = "fd_leaks"
	BudgetExceeded        = "budget_exceeded"
	SessionsLost          = "sessions_lost"
)

// Limits are those of all figures of the summary, in their order.
var Limits = []result.Limit{
	{Name: InheritedP50, Limit: 0.15}, {Name: InheritedP95, Limit: 0.2}, {Name: InheritedVsFetch, Limit: 0.5},
	{Name: InheritedFar, Limit: 1.5},
	{Name: FirstQuery10, Limit: 1.25}, {Name: FirstQuery50, Limit: 1.1}, {Name: FirstQueryVsDirect, Limit: 0.2},
	{Name: FirstQueryVsPgBouncer, Limit: 1.15}, {Name: FirstCommand, Limit: 1.25},
	{Name: AheadExcess, Limit: 5}, {Name: ConnectVsLoopback, Limit: 1}, {Name: NonmatchingAdded, Limit: 60},
	{Name: Lifetime10, Limit: 0.85}, {Name: Lifetime50, Limit: 0.6}, {Name: LifetimeLoopback, Limit: 1.03},
	{Name: HotSmall, Limit: 60}, {Name: HotLarge, Limit: 250}, {Name: HotVsPgBouncer, Limit: 1.05},
	{Name: DaemonMemory, Limit: 64},
	{Name: CrossTenant, Counts: true}, {Name: Reused, Counts: true}, {Name: Leaks, Counts: true},
	{Name: BudgetExceeded, Counts: true},
	{Name: SessionsLost, Counts: true},
}

// Part is what one part of the benchmark has measured.
type Part = result.Part[Point]

// Results are all parts by their names, measured together or one after the other.
type Results map[string]Part

// Summary has the worst of each figure.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, part := range r {
		s.TakeFigures(Limits, part.Figures)
	}
	return s
}

// Figures are the drawings of the parts that have been measured, by file name.
func (r Results) Figures() map[string][]chart.Panel {
	all := map[string][]chart.Panel{}
	if points := r[TCP].Points; len(points) > 0 {
		all["connections-tcp.svg"] = distributions(points)
	}
	if points := r[Postgres].Points; len(points) > 0 {
		maps.Copy(all, map[string][]chart.Panel{"connections-lifetime.svg": lifetimes(points)})
	}
	return all
}
