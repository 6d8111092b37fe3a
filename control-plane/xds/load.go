package xds

import (
	"cmp"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/signals"
)

// LoadInterval is how often a gateway reports: fine enough for an idle window of some
// seconds.
const LoadInterval = time.Second

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
		SendAllClusters:           true,
		LoadReportingInterval:     durationpb.New(LoadInterval),
		ReportEndpointGranularity: true,
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
func loads(stats []*endpoint.ClusterStats, isFunction func(string) bool) []signals.Load {
	sums := make(map[string]signals.Load)
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
			if seconds := c.GetLoadReportInterval().AsDuration().Seconds(); seconds > 0 {
				sum.Endpoints = appendEndpoints(sum.Endpoints, locality.GetUpstreamEndpointStats(), seconds)
			}
		}
		sums[name] = sum
	}
	out := make([]signals.Load, 0, len(sums))
	for _, sum := range sums {
		if sum.InFlight > 0 || sum.Issued > 0 {
			out = append(out, sum)
		}
	}
	slices.SortFunc(out, func(a, b signals.Load) int { return cmp.Compare(a.Function, b.Function) })
	return out
}

// endpointsMost bounds what a gateway can say of one function.
const endpointsMost = 4096

func appendEndpoints(list []signals.EndpointLoad, stats []*endpoint.UpstreamEndpointStats, seconds float64) []signals.EndpointLoad {
	for _, s := range stats {
		at := s.GetAddress().GetSocketAddress()
		if at == nil || len(list) == endpointsMost {
			continue
		}
		list = append(list, signals.EndpointLoad{Address: net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPortValue()))), InFlight: s.GetTotalRequestsInProgress(),
			Succeeded: float64(s.GetTotalSuccessfulRequests()) / seconds, Failed: float64(s.GetTotalErrorRequests()) / seconds})
	}
	return list
}
