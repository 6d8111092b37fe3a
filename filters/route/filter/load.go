package filter

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/filters/route"
)

const (
	// loadHeader is where an answer says what its endpoint has to do (ORCA).
	loadHeader = "endpoint-load-metrics"
	// loadBytes bounds it: a report has some numbers.
	loadBytes = 1 << 10
	// textFormat is the only one that is read here, as it is read with each answer; daemons
	// read all of them.
	textFormat  = "TEXT "
	namedMetric = "named_metrics."
	// largest is beyond anything that package route believes.
	largest = 1e12
)

// readLoad reads a report; ok is false if it does not say how many requests the endpoint has.
func readLoad(text string) (l route.Load, ok bool) {
	rest, ok := strings.CutPrefix(text, textFormat)
	if !ok || len(text) > loadBytes {
		return l, false
	}
	said := false
	for pair := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		switch strings.TrimPrefix(name, namedMetric) {
		case "in_flight":
			n, ok := number(value)
			l.InFlight, said = int(n), ok
		case "capacity":
			n, _ := number(value)
			l.Workers = int(n)
		case "service_time":
			n, _ := number(value)
			l.Service = time.Duration(min(n, math.MaxInt64/float64(2*time.Second)) * float64(time.Second))
		}
	}
	return l, said
}

// number refuses what no report can mean.
func number(text string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	return min(n, largest), true
}
