package tenants

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

func TestVerdict(t *testing.T) {
	at := time.Unix(1, 0)
	own := report.Word{Tenant: "t01", Asked: "g1 t01", Whose: "g1 t01", PID: 7, Started: at, Waited: true}
	later := own
	later.Started = at.Add(time.Millisecond) // another process with the same number
	marked, others, foreign, first := own, own, own, own
	marked.PID, marked.Marker = 8, "t01"
	others.PID, others.Whose = 9, "g1 t02"
	foreign.PID, foreign.Marker = 10, "t02"
	first.PID, first.First = 11, true
	for name, c := range map[string]struct {
		words []report.Word
		want  Counts
	}{
		"as it is to be":      {[]report.Word{own, later}, Counts{Handovers: 2, Waited: 2}},
		"one twice":           {[]report.Word{own, own}, Counts{Handovers: 2, Waited: 2, Reused: 1}},
		"one with a mark":     {[]report.Word{marked}, Counts{Handovers: 1, Waited: 1, Reused: 1}},
		"of another":          {[]report.Word{others}, Counts{Handovers: 1, Waited: 1, CrossTenant: 1}},
		"before it asked":     {[]report.Word{first}, Counts{Handovers: 1, Waited: 1, CrossTenant: 1}},
		"another's mark":      {[]report.Word{foreign}, Counts{Handovers: 1, Waited: 1, CrossTenant: 1, Reused: 1}},
		"none, and one ended": {[]report.Word{{Failed: "refused"}, {Lost: "EOF"}}, Counts{Failed: 1, Lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVerdict()
			for _, w := range c.words {
				v.word(w)
			}
			got := v.counts()
			got.Said = nil
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}
