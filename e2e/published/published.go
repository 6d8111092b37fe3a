// Package published has the results that the documentation shows: each is a benchmark's own file,
// kept in docs/results, and each table of a page is made from one.
package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sources are where benchmarks leave their results, below out, by their names in docs/results.
var sources = map[string]string{
	"demo.json":        "demo/summary.json",
	"cluster.json":     "bench/cluster.json",
	"prefetch.json":    "bench/prefetch.json",
	"routing.json":     "bench/routing.json",
	"cache.json":       "bench/cache.json",
	"connections.json": "bench/connections.json",
	"speculation.json": "bench/speculation.json",
}

// Take copies the results that out has into dir, and returns their names. Results that are of no
// commit are refused: nobody could tell what they are of.
func Take(out, dir string) (taken []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		path := filepath.Join(out, sources[name])
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return taken, err
		}
		if err := ofCommits(b); err != nil {
			return taken, fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return taken, err
		}
		taken = append(taken, name)
	}
	if len(taken) == 0 {
		return nil, fmt.Errorf("%s has no results: run `make demo` or a benchmark first", out)
	}
	return taken, nil
}

// ofCommits tells whether the results name the commit that they are of, or each part its own.
func ofCommits(results []byte) error {
	type run struct {
		Commit string `json:"commit"`
	}
	var r struct {
		run
		Parts map[string]run `json:"parts"`
	}
	if err := json.Unmarshal(results, &r); err != nil {
		return err
	}
	if r.Parts == nil {
		r.Parts = map[string]run{"the run": r.run}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		switch commit := r.Parts[name].Commit; {
		case commit == "", strings.HasSuffix(commit, "dev"):
			return fmt.Errorf("%s names no commit: measure with a program that make has built from a git repository", name)
		case strings.HasSuffix(commit, "-dirty"):
			return fmt.Errorf("%s is of %s: commit the changes, and measure again", name, commit)
		}
	}
	return nil
}
