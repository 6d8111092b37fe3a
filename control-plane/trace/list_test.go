package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

func ids(all []trace.Summary) (out []string) {
	for _, s := range all {
		n, _ := strconv.ParseUint(s.ID, 16, 64)
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func TestTheLatestAndTheSlowest(t *testing.T) {
	s := trace.NewStore()
	for i := 1; i <= 30; i++ { // the older the slower, and every third of another namespace
		put(t, s, uint64(i), fmt.Sprintf("city-%d/fire", i%3), i, 100-i)
	}
	l := s.List("")
	if d := cmp.Diff([]string{"30", "29", "28", "27", "26", "25", "24", "23", "22", "21"}, ids(l.Latest)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, ids(l.Slowest)); d != "" || l.Kept != 30 {
		t.Error(l.Kept, d)
	}
	if l := s.List("city-0"); l.Kept != 10 || !slices.Equal(ids(l.Latest), []string{"30", "27", "24", "21", "18", "15", "12", "9", "6", "3"}) {
		t.Errorf("of a namespace: %+v", l)
	}
	if l := trace.NewStore().List(""); l.Latest == nil || l.Slowest == nil || l.Kept != 0 {
		t.Errorf("of none: %+v", l)
	}
}

// What several control planes have of one trace is one trace.
func TestMergeListings(t *testing.T) {
	a := trace.Summary{ID: "a", Function: "", DurationMS: 5, Spans: 1, Status: trace.OK}
	more := trace.Summary{ID: "a", Function: "default/fire", DurationMS: 9, Spans: 2, ColdStart: true, Status: trace.Error}
	b := trace.Summary{ID: "b", DurationMS: 7, Spans: 1, Status: trace.OK}
	got := trace.MergeListings(trace.Listing{Latest: []trace.Summary{a, b}, Slowest: []trace.Summary{b, a}, Kept: 2, Unsampled: 1},
		trace.Listing{Latest: []trace.Summary{more}, Slowest: []trace.Summary{more}, Kept: 1, Unsampled: 2})
	whole := more
	whole.Spans = 3
	if d := cmp.Diff([]trace.Summary{whole, b}, got.Slowest); d != "" || got.Kept != 2 || got.Unsampled != 3 || len(got.Latest) != 2 {
		t.Errorf("%+v: %s", got, d)
	}
}

// Who asks for a trace that cannot be shown learns why.
func TestWhyThereIsNoTrace(t *testing.T) {
	s := trace.NewStore()
	s.Unsampled(one)
	s.Unsampled(one) // placed again
	s.Unsampled("-") // no request's id
	put(t, s, 1, "default/fire", 1, 1)
	for i := 2; i <= 1001; i++ {
		put(t, s, uint64(i), "default/fire", i, 1)
	}
	for want, of := range map[trace.Absence]string{trace.NotSampled: one, trace.NotKept: number(1), trace.Unknown: two} {
		if got := s.Absent(of); got != want {
			t.Errorf("%s: %s", of, got)
		}
		if !errors.Is(want, want) || len(want.Error()) < 40 {
			t.Errorf("%s is not explained: %s", want, want.Error())
		}
	}
	if n := s.List("").Unsampled; n != 1 {
		t.Errorf("%d were not sampled", n)
	}
	for i := range 10_000 {
		s.Unsampled(fmt.Sprintf("%032x", 1<<20+i))
	}
	if got := s.Absent(one); got != trace.Unknown {
		t.Errorf("the oldest is remembered as %s: memory has no bound", got)
	}
}

// put has the store take trace number n, which begins so many seconds after the others' epoch.
func put(t *testing.T, s *trace.Store, n uint64, function string, second, took int) {
	t.Helper()
	p := otlp(n, 1, "gateway", attribute("headstart.function", text(function)))
	start := epoch.Add(time.Duration(second) * time.Second)
	p.StartTimeUnixNano, p.EndTimeUnixNano = uint64(start.UnixNano()), uint64(start.Add(time.Duration(took)*ms).UnixNano())
	export(t, s, p)
}
