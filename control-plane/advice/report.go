package advice

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/history"
)

// Gained is what a function has gained.
type Gained struct {
	Function string `json:"function"`
	// IdleReplicaSeconds is for how long replicas were away because nobody asked for them.
	IdleReplicaSeconds float64 `json:"idleReplicaSeconds"`
	// ColdStarts requests waited for a start, StartSeconds in all. Inputs that were there by then had taken InputSeconds. For
	// SavedSeconds inputs came while the function started.
	ColdStarts   float64 `json:"coldStarts"`
	StartSeconds float64 `json:"startSeconds"`
	InputSeconds float64 `json:"inputSeconds"`
	SavedSeconds float64 `json:"savedSeconds"`
}

// Plus is what both have gained.
func (g Gained) Plus(o Gained) Gained {
	return Gained{g.Function, g.IdleReplicaSeconds + o.IdleReplicaSeconds, g.ColdStarts + o.ColdStarts, g.StartSeconds + o.StartSeconds,
		g.InputSeconds + o.InputSeconds, g.SavedSeconds + o.SavedSeconds}
}

// counted are the metrics that a report is made of, docs/reference/metrics.md, and what their growth adds to it.
var counted = []struct {
	metric string
	add    func(g *Gained, grown float64)
}{
	{`headstart_cold_start_seconds_count{phase="start"}`, func(g *Gained, n float64) { g.ColdStarts += n }},
	{`headstart_cold_start_seconds_sum{phase="start"}`, func(g *Gained, n float64) { g.StartSeconds += n }},
	{`headstart_cold_start_seconds_sum{phase="input"}`, func(g *Gained, n float64) { g.InputSeconds += n }},
	{`headstart_cold_start_saved_seconds_total`, func(g *Gained, n float64) { g.SavedSeconds += n }},
}

// Report tells what functions have gained, those first that have gained most; of one namespace, unless that is empty.
func Report(ctx context.Context, h History, step time.Duration, namespace string) ([]Gained, error) {
	all := map[string]*Gained{}
	of := func(s history.Series) *Gained {
		name := s.Labels["function"]
		if ns, _, _ := strings.Cut(name, "/"); name == "" || namespace != "" && ns != namespace {
			return nil
		}
		if all[name] == nil {
			all[name] = &Gained{Function: name}
		}
		return all[name]
	}
	for _, c := range counted {
		series, err := h.Growth(ctx, c.metric, "function")
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if g := of(s); g != nil {
				c.add(g, history.Sum(s.Values))
			}
		}
	}
	// Each control plane tells all of them, and one that starts may not know some for a moment.
	series, err := h.Range(ctx, "max by (function) (headstart_withdrawn_replicas)")
	if err != nil {
		return nil, err
	}
	for _, s := range series {
		if g := of(s); g != nil {
			g.IdleReplicaSeconds += history.Sum(s.Values[1:]) * step.Seconds()
		}
	}
	functions := []Gained{}
	for _, g := range all {
		functions = append(functions, *g)
	}
	slices.SortFunc(functions, func(a, b Gained) int {
		return cmp.Or(cmp.Compare(b.IdleReplicaSeconds, a.IdleReplicaSeconds), cmp.Compare(b.SavedSeconds, a.SavedSeconds),
			cmp.Compare(a.Function, b.Function))
	})
	return functions, nil
}
