package history

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Prometheus refuses more than 11,000 points of a series.
func TestLast(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 400_000, time.UTC)
	for since, step := range map[time.Duration]time.Duration{
		time.Second: 15 * time.Second, time.Hour: 15 * time.Second, 7 * 24 * time.Hour: 56 * time.Second, 365 * 24 * time.Hour: 2894 * time.Second,
	} {
		w := Last(since, 0, now)
		if w.Step != step || w.To != now.Truncate(time.Second) || w.Points() > 11_000 || w.Length()%w.Step != 0 || w.Length() > max(since, step) || w.Length() < since-step {
			t.Errorf("%v: %+v, %d points", since, w, w.Points())
		}
	}
	if w := Last(time.Hour, 90*time.Second, now); w.Step != 90*time.Second { // scraped so rarely
		t.Errorf("%+v", w)
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
			if _, err := Open(t.Context(), strings.Replace(server.URL, "//", "//user:hunter2@", 1), http.DefaultTransport, time.Hour, time.Now()); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Error(err)
			}
		})
	}
}
