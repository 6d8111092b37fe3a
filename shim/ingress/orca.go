package ingress

import (
	"encoding/base64"
	"math"
	"net/http"
	"strconv"
	"strings"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Headers of an answer by which a program reports its load (ORCA): the first as JSON, TEXT
// or BIN, as Envoy reads it, the second as what BIN has.
const (
	headerLoadMetrics    = "Endpoint-Load-Metrics"
	headerLoadMetricsBin = "Endpoint-Load-Metrics-Bin"
	// loadMetricsMost bounds them, in bytes: a report has some numbers.
	loadMetricsMost = 4 << 10
	namedMetrics    = "named_metrics."
)

// programLoad is what a function's program says of itself. What it does not say, or what
// cannot be, is 0.
type programLoad struct {
	// utilization is how much of what it can do it does.
	utilization float64
	// service is how long it works on a request, in seconds, without waiting.
	service float64
	// capacity is how many requests it works on at a time.
	capacity float64
}

// readLoad is what an answer says. ok is false if it says nothing that is understood.
func readLoad(h http.Header) (l programLoad, ok bool) {
	report, ok := readReport(h)
	if !ok {
		return programLoad{}, false
	}
	named := report.GetNamedMetrics()
	l = programLoad{utilization: plain(report.GetApplicationUtilization()), service: plain(named[metricServiceTime]), capacity: plain(named[metricCapacity])}
	return l, l != programLoad{}
}

func plain(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}

func readReport(h http.Header) (*orca.OrcaLoadReport, bool) {
	said, binary := h.Get(headerLoadMetrics), h.Get(headerLoadMetricsBin)
	if len(said) > loadMetricsMost || len(binary) > loadMetricsMost {
		return nil, false
	}
	format, value, _ := strings.Cut(said, " ")
	report := &orca.OrcaLoadReport{}
	switch format {
	case "JSON":
		return report, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal([]byte(value), report) == nil
	case "TEXT":
		return report, readText(value, report)
	case "BIN":
		binary = value
	case "":
	default:
		return nil, false
	}
	raw, err := base64.StdEncoding.DecodeString(binary)
	return report, err == nil && len(raw) > 0 && proto.Unmarshal(raw, report) == nil
}

// readText reads name=value pairs. Names that are not known here are passed over.
func readText(text string, report *orca.OrcaLoadReport) bool {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, is := strings.Cut(strings.TrimSpace(pair), "=")
		number, err := strconv.ParseFloat(value, 64)
		if !is || err != nil {
			return false
		}
		if metric, named := strings.CutPrefix(name, namedMetrics); named {
			if report.NamedMetrics == nil {
				report.NamedMetrics = map[string]float64{}
			}
			report.NamedMetrics[metric] = number
		} else if name == "application_utilization" {
			report.ApplicationUtilization = number
		}
	}
	return true
}
