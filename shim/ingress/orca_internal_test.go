package ingress

import (
	"encoding/base64"
	"math"
	"net/http"
	"strings"
	"testing"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/protobuf/proto"
)

func TestLoadsThatProgramsReport(t *testing.T) {
	raw, err := proto.Marshal(&orca.OrcaLoadReport{ApplicationUtilization: 0.5, NamedMetrics: map[string]float64{"service_time": 0.004, "capacity": 8}})
	if err != nil {
		t.Fatal(err)
	}
	binary := base64.StdEncoding.EncodeToString(raw)
	all := programLoad{utilization: 0.5, service: 0.004, capacity: 8}
	for name, c := range map[string]struct {
		header, value string
		want          programLoad
	}{
		"JSON":                        {headerLoadMetrics, `JSON {"application_utilization": 0.5, "named_metrics": {"service_time": 0.004, "capacity": 8}, "of a newer version": 1}`, all},
		"TEXT":                        {headerLoadMetrics, "TEXT application_utilization=0.5, named_metrics.service_time=0.004,named_metrics.capacity=8,cpu_utilization=0.3,named_metrics.other=7", all},
		"BIN":                         {headerLoadMetrics, "BIN " + binary, all},
		"binary":                      {headerLoadMetricsBin, binary, all},
		"some of it":                  {headerLoadMetrics, "TEXT named_metrics.capacity=8", programLoad{capacity: 8}},
		"nothing":                     {headerLoadMetrics, "", programLoad{}},
		"nothing of use":              {headerLoadMetrics, "TEXT cpu_utilization=0.3", programLoad{}},
		"what cannot be":              {headerLoadMetrics, "TEXT application_utilization=-1,named_metrics.service_time=NaN,named_metrics.capacity=+Inf", programLoad{}},
		"no number":                   {headerLoadMetrics, "TEXT named_metrics.capacity=many", programLoad{}},
		"no pair":                     {headerLoadMetrics, "TEXT named_metrics.capacity", programLoad{}},
		"no JSON":                     {headerLoadMetrics, "JSON {", programLoad{}},
		"no base64":                   {headerLoadMetricsBin, "%%%", programLoad{}},
		"no message":                  {headerLoadMetricsBin, base64.StdEncoding.EncodeToString([]byte{0xff}), programLoad{}},
		"in a format that is unknown": {headerLoadMetrics, "YAML a: 1", programLoad{}},
		"too much":                    {headerLoadMetrics, "TEXT named_metrics.capacity=8," + strings.Repeat("named_metrics.x=1,", 1000) + "eps=1", programLoad{}},
	} {
		got, ok := readLoad(http.Header{c.header: {c.value}})
		if got != c.want || ok != (c.want != programLoad{}) {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

// Whatever a program says, it is numbers.
func FuzzLoadsThatProgramsReport(f *testing.F) {
	f.Add("JSON {\"named_metrics\": {\"capacity\": \"NaN\"}}", "")
	f.Add("TEXT named_metrics.capacity=1e999", "")
	f.Add("", "/////w==")
	f.Fuzz(func(t *testing.T, said, binary string) {
		l, _ := readLoad(http.Header{headerLoadMetrics: {said}, headerLoadMetricsBin: {binary}})
		for _, v := range []float64{l.utilization, l.service, l.capacity} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
