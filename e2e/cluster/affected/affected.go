// Package affected tells which tests on a cluster a change can touch.
package affected

import (
	"path"
	"slices"
	"strings"
	"time"
)

// Suite is a package of tests.
type Suite struct {
	// Package is its directory in the repository.
	Package string
	// Of are the directories of all packages that it is made of, and of those of the programs
	// that it runs.
	Of map[string]bool
	// World: it runs on a cluster with Headstart installed, by the chart and with its filters.
	World bool
	// Always: any change touches it but one of what is for people only.
	Always bool
	// Takes is about how long it takes, without what takes longest in it (go test -short).
	Takes time.Duration
}

// By returns those suites, in their order, that a change of these files can touch. A file that
// it knows nothing of touches all.
func By(changed []string, suites []Suite) []Suite {
	return slices.DeleteFunc(slices.Clone(suites), func(s Suite) bool {
		return !slices.ContainsFunc(changed, func(file string) bool { return touches(file, s, suites) })
	})
}

func touches(file string, s Suite, suites []Suite) bool {
	dir, isGo := path.Dir(file), strings.HasSuffix(file, ".go")
	if !isGo || strings.Contains(file, "/testdata/") { // whose programs are no package's dependencies
		dir = owner(dir, suites)
	}
	switch {
	case isProse(file):
		return false
	case s.Always:
		return true
	case strings.HasSuffix(file, "_test.go"):
		return dir == s.Package
	case strings.HasPrefix(file, "filters/"), strings.HasPrefix(file, "manifests/"):
		return s.World || s.Of[dir]
	case isGo:
		return s.Of[dir]
	case strings.HasPrefix(file, "e2e/cluster/"):
		return true // how the cluster is built, and what is in it
	}
	return dir == "." || s.Of[dir]
}

// Fit returns the suites that can be run within a time, one after the other, and those
// that are left: a suite for which there is no time makes way for shorter ones after it.
func Fit(suites []Suite, within time.Duration) (fit, left []Suite) {
	for _, s := range suites {
		if s.Takes > within {
			left = append(left, s)
			continue
		}
		fit, within = append(fit, s), within-s.Takes
	}
	return fit, left
}

// isProse tells whether a file is for people only.
func isProse(file string) bool {
	return strings.HasPrefix(file, "docs/") || strings.HasSuffix(file, ".md") || file == "LICENSE"
}

// owner is the directory of the package that a file in dir belongs to that is not Go's: the
// nearest above that a suite needs, or "." for none.
func owner(dir string, suites []Suite) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if slices.ContainsFunc(suites, func(s Suite) bool { return s.Of[dir] }) {
			break
		}
	}
	return dir
}
