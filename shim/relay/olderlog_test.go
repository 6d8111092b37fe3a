package relay

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	olderlog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/shim/accesslog"
)

func (r *rig) olderLogs(t *testing.T) olderlog.AccessLogService_StreamAccessLogsClient {
	t.Helper()
	s, err := olderlog.NewAccessLogServiceClient(r.gateway).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func older(entries ...*logdata.HTTPAccessLogEntry) *olderlog.StreamAccessLogsMessage {
	return &olderlog.StreamAccessLogsMessage{LogEntries: &olderlog.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &olderlog.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: entries}}}
}

func olderEnded(to string, port uint32) *logdata.HTTPAccessLogEntry {
	return &logdata.HTTPAccessLogEntry{
		CommonProperties: &logdata.AccessLogCommon{
			AccessLogType: logdata.AccessLogType_UpstreamEnd, CustomTags: map[string]string{"headstart.function": "default/fire"},
			Duration: durationpb.New(100 * time.Millisecond), TimeToFirstUpstreamTxByte: durationpb.New(time.Millisecond), TimeToLastUpstreamRxByte: durationpb.New(99 * time.Millisecond),
			UpstreamRemoteAddress: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: to, PortSpecifier: &core.SocketAddress_PortValue{PortValue: port}}}},
		},
		Request:  &logdata.HTTPRequestProperties{RequestHeaders: map[string]string{"x-headstart-endpoint": "10.0.0.1:8080"}},
		Response: &logdata.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200)},
	}
}

// Gateways that are configured as in the version before say the same.
func TestOlderGatewaysAreUnderstood(t *testing.T) {
	want := accesslog.Entry{Function: "default/fire", Kind: accesslog.Ended, Status: 200, Lasted: 100 * time.Millisecond, Took: 98 * time.Millisecond,
		Answered: true, Named: "10.0.0.1:8080", To: address}
	same := func(what string, m *logdata.HTTPAccessLogEntry) {
		t.Helper()
		if d := cmp.Diff(want, olderEntry(m), cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	same("an end", olderEnded(instance, 8080))
	m := olderEnded(instance, 8080)
	m.CommonProperties.CustomTags, m.Request.RequestHeaders["x-headstart-function"] = nil, "default/fire"
	same("the function is in a header", m)

	want.To = netip.AddrPort{}
	same("a name", olderEnded("fire.default", 80))
	same("a zone", olderEnded("fe80::1%made-up", 80))
	same("no port", olderEnded(instance, 1<<16))
	want.Lasted, want.Took, want.Answered = 0, 0, false
	m = olderEnded("", 0)
	m.CommonProperties.Duration, m.CommonProperties.TimeToLastUpstreamRxByte = durationpb.New(-1), &durationpb.Duration{Seconds: math.MaxInt64}
	same("times that cannot be", m)
	want.Broken = true
	m.CommonProperties.ResponseFlags = &logdata.ResponseFlags{UpstreamRemoteReset: true}
	same("broken off", m)

	r := newRig(t, "")
	r.relay.SetFunctions(functions())
	s := r.olderLogs(t)
	for _, m := range []*olderlog.StreamAccessLogsMessage{{}, older(olderEnded(instance, 8080))} {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	if got := r.activities.take(); !slices.Equal(got, []string{"default/fire true"}) {
		t.Errorf("heard %q", got)
	}
}

func FuzzOlderEntry(f *testing.F) {
	b, err := proto.Marshal(olderEnded(instance, 8080))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m logdata.HTTPAccessLogEntry
		if proto.Unmarshal(b, &m) == nil {
			canBe(t, counted(olderEntry(&m)))
		}
	})
}
