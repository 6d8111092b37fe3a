package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// wrkReport is what wrk says at its end.
type wrkReport struct {
	rps float64
	// lost are requests that failed, or whose answer was none of 2xx and 3xx.
	lost int
}

var (
	wrkRate   = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)
	wrkErrors = regexp.MustCompile(`(?m)^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$`)
	wrkStatus = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)$`)
)

func parseWrk(out string) (r wrkReport, err error) {
	m := wrkRate.FindStringSubmatch(out)
	if m == nil {
		return r, fmt.Errorf("wrk says no rate: %s", out)
	}
	if r.rps, err = strconv.ParseFloat(m[1], 64); err != nil {
		return r, err
	}
	for _, all := range [][]string{wrkErrors.FindStringSubmatch(out), wrkStatus.FindStringSubmatch(out)} {
		for _, s := range all[min(1, len(all)):] {
			n, err := strconv.Atoi(s)
			if err != nil {
				return r, err
			}
			r.lost += n
		}
	}
	return r, nil
}

// medianOf at least one value, the upper one of two.
func medianOf(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
