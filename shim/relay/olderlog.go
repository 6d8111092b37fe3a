package relay

import (
	"cmp"
	"errors"
	"io"
	"net/netip"
	"time"

	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	olderlog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/accesslog"
)

// olderTag is the custom tag of an entry that names the function.
const olderTag = "headstart.function"

// olderLogService takes the access logs of gateways that are configured as in the version before, in
// Envoy's own form (ALS). It goes with the next version.
type olderLogService struct {
	olderlog.UnimplementedAccessLogServiceServer
	relay *Relay
}

func (s *olderLogService) StreamAccessLogs(str olderlog.AccessLogService_StreamAccessLogsServer) error {
	leave, err := s.relay.enter(str.Context())
	if err != nil {
		return err
	}
	defer leave()
	for {
		m, err := str.Recv()
		if errors.Is(err, io.EOF) {
			return str.SendAndClose(&olderlog.StreamAccessLogsResponse{})
		}
		if err != nil {
			return err
		}
		var entries []accesslog.Entry
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			entries = append(entries, olderEntry(e))
		}
		s.relay.activity.seen(entries)
	}
}

func olderEntry(m *logdata.HTTPAccessLogEntry) accesslog.Entry {
	p, headers, flags := m.GetCommonProperties(), m.GetRequest().GetRequestHeaders(), m.GetCommonProperties().GetResponseFlags()
	e := accesslog.Entry{
		Function: cmp.Or(p.GetCustomTags()[olderTag], headers[filterapi.HeaderFunction]),
		Kind:     accesslog.Kind(p.GetAccessLogType().String()),
		Status:   int(m.GetResponse().GetResponseCode().GetValue()),
		Broken: flags.GetUpstreamConnectionFailure() || flags.GetUpstreamConnectionTermination() || flags.GetUpstreamRemoteReset() ||
			flags.GetUpstreamRequestTimeout() || flags.GetUpstreamProtocolError() || flags.GetUpstreamMaxStreamDurationReached(),
		Named: cmp.Or(headers[filterapi.HeaderSession], headers[filterapi.HeaderEndpoint]),
	}
	e.Lasted, _ = olderLength(p.GetDuration())
	begin, begun := olderLength(p.GetTimeToFirstUpstreamTxByte())
	end, answered := olderLength(p.GetTimeToLastUpstreamRxByte())
	if begun && answered && end >= begin {
		e.Took, e.Answered = end-begin, true
	}
	to := p.GetUpstreamRemoteAddress().GetSocketAddress()
	if ip, err := netip.ParseAddr(to.GetAddress()); err == nil && ip.Zone() == "" && to.GetPortValue() > 0 && to.GetPortValue() <= 65535 {
		e.To = netip.AddrPortFrom(ip, uint16(to.GetPortValue()))
	}
	return e
}

// olderLength is a time that a request can take.
func olderLength(d *durationpb.Duration) (_ time.Duration, ok bool) {
	l := d.AsDuration()
	if d == nil || l < 0 || l > time.Hour {
		return 0, false
	}
	return l, true
}
