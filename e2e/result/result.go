// Package result is how a benchmark keeps what it measured, part by part, and what it makes
// of it: figures, some of which have a limit.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/host"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Part is what is known of a part of a benchmark.
type Part[Point any] struct {
	At          time.Time      `json:"at"` // its end
	Took        float64        `json:"took_s"`
	Commit      string         `json:"commit"` // of the benchmark's own build
	Machine     map[string]any `json:"machine"`
	Seed        uint64         `json:"seed"`
	Repetitions int            `json:"repetitions"`
	// Figures are the part's own; those that have a limit go into the summary.
	Figures map[string]float64 `json:"figures,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
	Points  []Point            `json:"points,omitempty"`

	began time.Time
}

// Begin returns a part that begins now.
func Begin[Point any](seed uint64, repetitions int) Part[Point] {
	return Part[Point]{began: time.Now(), Commit: nodeapi.Version, Machine: host.Describe(), Seed: seed, Repetitions: repetitions, Figures: map[string]float64{}}
}

// End says that it is done.
func (p *Part[Point]) End() { p.At, p.Took = time.Now().UTC(), time.Since(p.began).Seconds() }

// Summary has one value of each figure, by its name.
type Summary map[string]float64

// Take adds a value. If there is one, choose says what becomes of both.
func (s Summary) Take(name string, choose func(a, b float64) float64, v float64) {
	if old, ok := s[name]; ok {
		v = choose(old, v)
	}
	s[name] = v
}

// TakeFigures adds those of a part that have a limit: of two the worse, of counts the sum.
func (s Summary) TakeFigures(limits []Limit, figures map[string]float64) {
	for _, l := range limits {
		if v, ok := figures[l.Name]; ok {
			s.Take(l.Name, l.worse, v)
		}
	}
}

// Limit is a bound of a figure of the summary.
type Limit struct {
	Name    string
	Limit   float64
	AtLeast bool // else at most
	Counts  bool // parts' values are added up
}

func (l Limit) worse(a, b float64) float64 {
	switch {
	case l.Counts:
		return a + b
	case l.AtLeast:
		return math.Min(a, b)
	}
	return math.Max(a, b)
}

// Holds tells whether a figure is within its limit.
func (l Limit) Holds(got float64) bool {
	if l.AtLeast {
		return got >= l.Limit
	}
	return got <= l.Limit
}

// file is how results are kept.
type file[Point any] struct {
	Summary Summary                `json:"summary"`
	Parts   map[string]Part[Point] `json:"parts"`
}

// Load reads what Write has written: parts by their names. There are none where there is no
// file.
func Load[Point any](path string) (map[string]Part[Point], error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Part[Point]{}, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse[Point](b)
}

// Parse is Load of what was read already.
func Parse[Point any](b []byte) (map[string]Part[Point], error) {
	f := file[Point]{Parts: map[string]Part[Point]{}}
	return f.Parts, json.Unmarshal(b, &f)
}

// Write replaces the file, in one step.
func Write[Point any](path string, summary Summary, parts map[string]Part[Point]) error {
	b, err := json.MarshalIndent(file[Point]{Summary: summary, Parts: parts}, "", " ")
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

// Choose returns the parts that only names, comma-separated, or all if it names none.
func Choose(all []string, only string) ([]string, error) {
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("there is no part %q, but %s", n, strings.Join(all, ", "))
		}
	}
	return names, nil
}
