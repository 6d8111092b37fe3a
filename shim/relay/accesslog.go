package relay

import (
	"context"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"

	"github.com/headstart-mesh/headstart/shim/accesslog"
)

// logService takes the gateways' access logs, as OpenTelemetry log records.
type logService struct {
	logs.UnimplementedLogsServiceServer
	relay *Relay
}

func (s *logService) Export(ctx context.Context, m *logs.ExportLogsServiceRequest) (*logs.ExportLogsServiceResponse, error) {
	leave, err := s.relay.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for _, resource := range m.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			entries := make([]accesslog.Entry, 0, len(scope.GetLogRecords()))
			for _, record := range scope.GetLogRecords() {
				if e, ok := accesslog.Parse(record.GetBody().GetStringValue()); ok {
					entries = append(entries, e)
				}
			}
			s.relay.activity.seen(entries)
		}
	}
	return &logs.ExportLogsServiceResponse{}, nil
}
