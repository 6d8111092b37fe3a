package relay

import (
	"errors"
	"io"
	"strings"

	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// functionTag is the custom tag of an access log entry that names the function; the
	// gateways take it from their clusters' metadata.
	functionTag = "headstart.function"
)

// logService takes the gateways' access logs (Envoy's ALS).
type logService struct {
	accesslog.UnimplementedAccessLogServiceServer
	relay *Relay
}

func (s *logService) StreamAccessLogs(str accesslog.AccessLogService_StreamAccessLogsServer) error {
	leave, err := s.relay.enter(str.Context())
	if err != nil {
		return err
	}
	defer leave()
	for {
		m, err := str.Recv()
		if errors.Is(err, io.EOF) {
			return str.SendAndClose(&accesslog.StreamAccessLogsResponse{})
		}
		if err != nil {
			return err
		}
		s.relay.activity.seen(m.GetHttpLogs().GetLogEntry())
	}
}

// serviceOf returns the host of the service that a cluster of Istio's stands for, which is
// named outbound|<port>|<subset>|<host>; empty for clusters that are named otherwise.
func serviceOf(cluster string) string {
	rest, ok := strings.CutPrefix(cluster, "outbound|")
	if !ok || strings.Count(rest, "|") != 2 {
		return ""
	}
	return rest[strings.LastIndexByte(rest, '|')+1:]
}

// functionOf returns what an entry says of its function, which may be none that there is.
func functionOf(entry *logdata.HTTPAccessLogEntry, byHost map[string]string) string {
	if name := entry.GetCommonProperties().GetCustomTags()[functionTag]; name != "" {
		return name
	}
	if name := entry.GetRequest().GetRequestHeaders()[filterapi.HeaderFunction]; name != "" {
		return name
	}
	return byHost[serviceOf(entry.GetCommonProperties().GetUpstreamCluster())]
}
