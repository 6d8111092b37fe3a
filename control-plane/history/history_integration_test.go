//go:build integration

package history_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/control-plane/history/historytest"
)

func TestRange(t *testing.T) {
	const minutes = 60
	now := time.Now().Truncate(time.Second)
	var text strings.Builder
	for _, metric := range []string{"up", "calls"} {
		fmt.Fprintf(&text, "# TYPE %s gauge\n", metric)
		for i := range minutes {
			at := now.Add(-time.Duration(minutes-i) * time.Minute).Unix()
			if metric == "calls" && i >= 30 { // a counter that comes up late
				fmt.Fprintf(&text, "calls{service=\"a\"} %d %d\n", i/10, at)
			} else if metric == "up" {
				fmt.Fprintf(&text, "up 1 %d\n", at)
			}
		}
	}
	s, err := history.New(historytest.Start(t, text.String()), http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Known(t.Context(), history.Last(7*24*time.Hour, now))
	if err != nil || (w.Length()-time.Hour).Abs() > 2*time.Minute {
		t.Fatalf("the server knows of an hour: %v, %v", w.Length(), err)
	}
	all, err := s.Range(t.Context(), "sum by (service) (calls)", w)
	if err != nil || len(all) != 1 || cmp.Diff(all[0].Labels, map[string]string{"service": "a"}) != "" {
		t.Fatal(all, err)
	}
	if sum := history.Sum(history.Growth(all[0].Values)); sum != 5 { // it came up with 3, and the last is 5
		t.Errorf("it has grown by %v: %v", sum, all[0].Values)
	}
	if _, err := s.Range(t.Context(), "sum by (", w); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Error(err)
	}
	if _, err := s.Known(t.Context(), history.Last(time.Hour, now.Add(-48*time.Hour))); err == nil || !strings.Contains(err.Error(), "has nothing of the last 1h") {
		t.Error(err)
	}
}
