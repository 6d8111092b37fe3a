package filter

import (
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/route"
)

func TestReadLoad(t *testing.T) {
	for _, c := range []struct {
		text string
		want *route.Load
	}{
		{"TEXT application_utilization=2.500, named_metrics.in_flight=5, named_metrics.capacity=2, named_metrics.service_time=0.004200",
			&route.Load{InFlight: 5, Workers: 2, Service: 4200 * time.Microsecond}},
		{"TEXT named_metrics.in_flight=0", &route.Load{}},
		{"TEXT named_metrics.in_flight=3,named_metrics.capacity=-1,named_metrics.service_time=NaN", &route.Load{InFlight: 3}},
		{"TEXT named_metrics.capacity=2", nil},
		{"TEXT named_metrics.in_flight=-1", nil},
		{"TEXT named_metrics.in_flight=NaN", nil},
		{"TEXT named_metrics.in_flight", nil},
		{`JSON {"named_metrics":{"in_flight":1}}`, nil},
		{"BIN Cg==", nil},
		{"", nil},
		{"TEXT named_metrics.in_flight=1," + strings.Repeat("x", loadBytes), nil},
	} {
		got, ok := readLoad(c.text)
		if ok != (c.want != nil) {
			t.Errorf("%q: read is %v", c.text, ok)
		} else if ok && got != *c.want {
			t.Errorf("%q: got %+v, want %+v", c.text, got, *c.want)
		}
	}
}

// No report makes numbers that cannot be.
func FuzzReadLoad(f *testing.F) {
	f.Add("TEXT named_metrics.in_flight=5,named_metrics.capacity=2,named_metrics.service_time=0.0042")
	f.Add("TEXT named_metrics.in_flight=1e300,named_metrics.capacity=1e300,named_metrics.service_time=1e300")
	f.Fuzz(func(t *testing.T, text string) {
		if l, ok := readLoad(text); ok && (l.InFlight < 0 || l.Workers < 0 || l.Service < 0) {
			t.Errorf("%q: %+v", text, l)
		}
	})
}
