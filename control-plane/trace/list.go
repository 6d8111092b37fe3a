package trace

import (
	"cmp"
	"slices"
	"strings"
)

// listed is how many traces each part of a Listing has: two fit a screen.
const listed = 10

// Listing is which traces there are to look at.
type Listing struct {
	// Latest are the newest, the newest first.
	Latest []Summary `json:"latest"`
	// Slowest are those that took longest of all that are kept, the slowest first.
	Slowest []Summary `json:"slowest"`
	// Kept is how many there are.
	Kept int `json:"kept"`
	// Unsampled is how many requests came by that were not sampled. Hot ones do not come by.
	Unsampled int `json:"unsampled"`
}

// List returns the latest and the slowest traces of a namespace's functions, of all if it is
// empty.
func (s *Store) List(namespace string) Listing {
	s.mu.Lock()
	records := make([]record, 0, len(s.traces))
	for _, r := range s.traces {
		records = append(records, r.copy())
	}
	unsampled := s.absent.unsampled
	s.mu.Unlock()
	all := make([]Summary, 0, len(records))
	for _, r := range records {
		sum := r.ordered().Summary()
		if namespace == "" || strings.HasPrefix(sum.Function, namespace+"/") {
			all = append(all, sum)
		}
	}
	l := listing(all)
	l.Kept, l.Unsampled = len(all), unsampled
	return l
}

func listing(all []Summary) Listing {
	top := func(before func(a, b Summary) int) []Summary {
		sorted := slices.SortedFunc(slices.Values(all), func(a, b Summary) int { return cmp.Or(before(a, b), cmp.Compare(a.ID, b.ID)) })
		return slices.Clip(append([]Summary{}, sorted[:min(len(sorted), listed)]...))
	}
	return Listing{
		Latest:  top(func(a, b Summary) int { return b.Start.Compare(a.Start) }),
		Slowest: top(func(a, b Summary) int { return cmp.Compare(b.DurationMS, a.DurationMS) }),
	}
}

// MergeListings puts together what several collectors list. The parts of one trace that went to
// different ones count as one, as long as the longest of them.
func MergeListings(parts ...Listing) Listing {
	byID := map[string]Summary{}
	merged := Listing{}
	for _, part := range parts {
		seen := map[string]bool{} // a trace may be both latest and slowest
		for _, sum := range slices.Concat(part.Latest, part.Slowest) {
			if seen[sum.ID] {
				continue
			}
			seen[sum.ID] = true
			if other, ok := byID[sum.ID]; ok {
				sum = mergeSummaries(other, sum)
			}
			byID[sum.ID] = sum
		}
		merged.Kept = max(merged.Kept, part.Kept)
		merged.Unsampled += part.Unsampled
	}
	all := make([]Summary, 0, len(byID))
	for _, sum := range byID {
		all = append(all, sum)
	}
	l := listing(all)
	merged.Latest, merged.Slowest = l.Latest, l.Slowest
	return merged
}

func mergeSummaries(a, b Summary) Summary {
	if b.DurationMS > a.DurationMS {
		a, b = b, a
	}
	a.Request, a.Function = cmp.Or(a.Request, b.Request), cmp.Or(a.Function, b.Function)
	a.Spans += b.Spans
	a.ColdStart = a.ColdStart || b.ColdStart
	if b.Status == Error {
		a.Status = Error
	}
	return a
}
