package history

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGrowth(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct{ values, want []float64 }{
		"nothing":                   {nil, []float64{}},
		"there from the beginning":  {[]float64{1000, 1000, 1003}, []float64{0, 0, 3}},
		"comes up":                  {[]float64{nan, nan, 1, 1}, []float64{0, 0, 1, 0}},
		"a gap":                     {[]float64{5, nan, nan, 7}, []float64{0, 0, 0, 2}},
		"one who counted has ended": {[]float64{5, 9, 4, 6}, []float64{0, 4, 0, 2}},
		"all were away":             {[]float64{9, nan, 2}, []float64{0, 0, 0}},
	} {
		if d := cmp.Diff(c.want, Growth(c.values)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Prometheus refuses more than 11,000 points of a series.
func TestLast(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for since, step := range map[time.Duration]time.Duration{
		time.Second: 15 * time.Second, time.Hour: 15 * time.Second, 7 * 24 * time.Hour: 56 * time.Second, 365 * 24 * time.Hour: 2894 * time.Second,
	} {
		w := Last(since, now)
		if w.Step != step || w.To != now || w.points() > 11_000 || w.Length()%w.Step != 0 || w.Length() > max(since, step) || w.Length() < since-step {
			t.Errorf("%v: %+v, %d points", since, w, w.points())
		}
	}
}

// Who looks for Prometheus where it is not is told what is there.
func TestWhoAnswersIsNoPrometheus(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		answer string
		want   string
	}{
		"a web page":         {http.StatusOK, "<html>", "asking Prometheus at "},
		"forbidden":          {http.StatusForbidden, `{"kind":"Status","message":"services \"prometheus:9090\" is forbidden: User \"eve\" cannot get resource \"services/proxy\""}`, `User "eve" cannot get resource "services/proxy"`},
		"no such service":    {http.StatusNotFound, `{"kind":"Status","message":"services \"prometheus\" not found"}`, `services "prometheus" not found`},
		"a long explanation": {http.StatusBadGateway, strings.Repeat("x", 100_000), "server error: 502"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			defer server.Close()
			s, err := New(server.URL, http.DefaultTransport)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Known(t.Context(), Last(time.Hour, time.Now())); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Error(err)
			}
		})
	}
}
