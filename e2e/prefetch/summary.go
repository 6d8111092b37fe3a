package prefetch

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"
)

// The summary's names.
const (
	BoundExcess    = "bound_excess_max"
	IOReduction    = "io_reduction_min"
	TotalReduction = "total_reduction_max"
	HotRPS         = "hot_rps_ratio"
	HotP99         = "hot_p99_ratio"
	GatewayRSS     = "gateway_rss_mib"
	DaemonHeap     = "daemon_heap_mib"
	LinkFraction   = "link_fraction"
	WrongBytes     = "wrong_bytes"
)

// Limit is a bound of a figure of the summary.
type Limit struct {
	Name    string
	Limit   float64
	AtLeast bool // else at most
}

// Limits are those of all figures of the summary, in their order.
var Limits = []Limit{
	{BoundExcess, 1, false}, {IOReduction, 0.95, true}, {TotalReduction, 0.46, true}, {HotRPS, 0.95, true}, {HotP99, 1.1, false},
	{GatewayRSS, 16, false}, {DaemonHeap, 64, false}, {LinkFraction, 0.9, true}, {WrongBytes, 0, false},
}

// Holds tells whether a figure is within its limit.
func (l Limit) Holds(got float64) bool {
	if l.AtLeast {
		return got >= l.Limit
	}
	return got <= l.Limit
}

// Part is what one part of the benchmark has measured.
type Part struct {
	At          time.Time      `json:"at"` // its end
	Took        float64        `json:"took_s"`
	Machine     map[string]any `json:"machine"`
	Seed        uint64         `json:"seed"`
	Repetitions int            `json:"repetitions"`
	Points      []Point        `json:"points,omitempty"`
	// Figures are the part's own; those of the summary's names go into it.
	Figures map[string]float64 `json:"figures,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
}

// Rows are the medians of the part's points.
func (p Part) Rows() []Row {
	var rows []Row
	for _, point := range p.Points {
		rows = append(rows, point.Row())
	}
	return rows
}

// Results are all parts by their names, measured together or one after the other.
type Results map[string]Part

// Summary has the worst of each figure, but the largest reduction of a total.
func (r Results) Summary() map[string]float64 {
	s := map[string]float64{}
	take := func(name string, better func(a, b float64) float64, v float64) {
		if old, ok := s[name]; ok {
			v = better(old, v)
		}
		s[name] = v
	}
	for _, part := range r {
		for _, row := range part.Rows() {
			take(BoundExcess, math.Max, row.Excess())
			take(TotalReduction, math.Max, row.Reduction())
			if share, counts := row.IOReduction(); counts {
				take(IOReduction, math.Min, share)
			}
		}
		for _, l := range Limits {
			if v, ok := part.Figures[l.Name]; ok {
				switch {
				case l.Name == WrongBytes:
					take(l.Name, func(a, b float64) float64 { return a + b }, v)
				case l.AtLeast:
					take(l.Name, math.Min, v)
				default:
					take(l.Name, math.Max, v)
				}
			}
		}
	}
	return s
}

// file is how results are kept.
type file struct {
	Summary map[string]float64 `json:"summary"`
	Parts   Results            `json:"parts"`
}

// Load reads what Write has written; there are no results where there is no file.
func Load(path string) (Results, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	f := file{Parts: Results{}}
	return f.Parts, json.Unmarshal(b, &f)
}

// Write replaces the file, in one step.
func (r Results) Write(path string) error {
	b, err := json.MarshalIndent(file{Summary: r.Summary(), Parts: r}, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
