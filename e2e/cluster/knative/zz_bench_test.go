//go:build cluster && trykn

package knative_test

import (
	"os"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

func TestBenchTry(t *testing.T) {
	b := open(t)
	var cases []coldrun.Case
	for _, mb := range []int64{1, 32} {
		c, err := coldrun.Generated(t.Context(), b.Cloud.S3, mb)
		b.must(err)
		c.Label, c.Key, c.Relayed, c.Off, c.On = "Knative, "+c.Label, "knative_"+c.Key, true, "kn-"+c.Off, "kn-"+c.On
		b.must(b.DeployKnative(t.Context(), world.KnativePair(c, nil)...))
		defer b.RemoveKnative(t.Context(), world.KnativePair(c, nil)...)
		cases = append(cases, c)
	}
	run := coldrun.Run{World: b.client, Repetitions: 1, Bucket: testbed.Bucket, Progress: func(s string) { t.Log(s) }, Cold: b.knative.Cold}
	results, err := run.Measure(t.Context(), cases)
	b.must(err)
	var rows []coldrun.Row
	for _, r := range results {
		row := r.Row(100 * time.Millisecond)
		t.Logf("%s ratio %.2f wrong %d gap %v", r.Label, row.Ratio, r.Wrong, row.Gap)
		for i := range r.On {
			t.Logf("off %v beta %v input %v exec %v | on %v alpha %v delta %v relay %v exec %v", r.Off[i].Total, r.Off[i].Phases.Beta, r.Off[i].Input, r.Off[i].Exec, r.On[i].Total, r.On[i].Phases.Alpha, r.On[i].Phases.Delta, r.On[i].Phases.Relay, r.On[i].Exec)
		}
		rows = append(rows, row)
	}
	b.must(coldrun.Table(os.Stderr, rows))
	b.must(coldrun.DrawTimelines("/tmp/w/kn/t.svg", rows))
}
