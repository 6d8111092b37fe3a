package xds

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// LoadInterval is how often a gateway reports: fine enough for an idle window of some
// seconds.
const LoadInterval = time.Second

// Load is one function's requests through one gateway; a report lacks functions that
// have none. Requests with an input go to the daemon, hot or cold; the daemon counts
// those.
type Load struct {
	// Function is namespace/name.
	Function string
	// InFlight is the number of requests without an answer at the end of the interval,
	// those on draining instances among them.
	InFlight uint64
	// Issued is the number of requests since the report before.
	Issued uint64
}

// loadService takes load reports (Envoy's LRS).
type loadService struct {
	loadstats.UnimplementedLoadReportingServiceServer
	server *Server
}

func (l *loadService) StreamLoadStats(stream loadstats.LoadReportingService_StreamLoadStatsServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := l.server.peers.check(stream.Context(), first.GetNode()); err != nil {
		return err
	}
	if err := stream.Send(&loadstats.LoadStatsResponse{
		SendAllClusters:       true,
		LoadReportingInterval: durationpb.New(LoadInterval),
	}); err != nil {
		return err
	}
	gateway := first.GetNode().GetId()
	for {
		report, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if report.GetNode() != nil && report.GetNode().GetId() != gateway {
			return status.Error(codes.PermissionDenied, "the node's id changed")
		}
		l.server.cfg.OnLoad(gateway, loads(report.GetClusterStats(), l.server.isFunction))
	}
}

// loads sums up a report by function, without the idle ones. It drops clusters that are no function's, so that
// its result is no longer than the list of functions whatever the peer sends.
func loads(stats []*endpoint.ClusterStats, isFunction func(string) bool) []Load {
	sums := make(map[string]Load)
	for _, c := range stats {
		name := c.GetClusterName()
		if !isFunction(name) {
			continue
		}
		sum := sums[name]
		sum.Function = name
		for _, locality := range c.GetUpstreamLocalityStats() {
			sum.InFlight += locality.GetTotalRequestsInProgress()
			sum.Issued += locality.GetTotalIssuedRequests()
		}
		sums[name] = sum
	}
	out := make([]Load, 0, len(sums))
	for _, sum := range sums {
		if sum.InFlight > 0 || sum.Issued > 0 {
			out = append(out, sum)
		}
	}
	slices.SortFunc(out, func(a, b Load) int { return cmp.Compare(a.Function, b.Function) })
	return out
}
