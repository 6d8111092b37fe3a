package http

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// An answer holds as long as the server says (RFC 9111), and is not kept if he does not want that.
func TestFresh(t *testing.T) {
	const date, later = "Tue, 24 Nov 2026 12:00:00 GMT", "Tue, 24 Nov 2026 12:02:00 GMT"
	for text, want := range map[string]time.Duration{
		"":                                                                 0,
		"Cache-Control: max-age=60":                                        time.Minute,
		"Cache-Control: max-age=60, s-maxage=5":                            5 * time.Second,
		"Cache-Control: Max-Age=\"60\"":                                    time.Minute,
		"Cache-Control: max-age=60\nAge: 20":                               40 * time.Second,
		"Cache-Control: max-age=60\nAge: 61":                               0,
		"Cache-Control: max-age=60\nAge: young":                            0,
		"Cache-Control: max-age=60, no-cache":                              0,
		"Cache-Control: max-age=60\nCache-Control: no-cache":               0,
		"Cache-Control: max-age=60, must-revalidate":                       time.Minute,
		"Cache-Control: no-store, max-age=60":                              notKept,
		"Cache-Control: private, max-age=60":                               notKept,
		"Cache-Control: max-age=soon":                                      notKept, // whatever else it may say
		"Cache-Control: max-age=60\nVary: *":                               notKept,
		"Cache-Control: max-age=60\nVary: Origin":                          time.Minute,
		"Expires: " + later + "\nDate: " + date:                            2 * time.Minute,
		"Expires: " + later:                                                0,
		"Expires: 0\nDate: " + date:                                        0,
		"Cache-Control: max-age=60\nExpires: " + date + "\nDate: " + later: time.Minute,
		"Cache-Control: max-age=99999999999999999999":                      (1<<31 - 1) * time.Second,
	} {
		if got := (&object{Source: &Source{}}).fresh(header(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	asUser := &object{Source: &Source{config: Config{Credentials: func(context.Context) (secret.Secret, error) { return secret.Secret{}, nil }}}}
	for text, want := range map[string]time.Duration{
		"Cache-Control: max-age=60": 0, "Cache-Control: max-age=60, public": time.Minute,
		"Cache-Control: s-maxage=60": time.Minute, "Cache-Control: max-age=60, must-revalidate": time.Minute,
	} {
		if got := asUser.fresh(header(text)); got != want {
			t.Errorf("with credentials, %q: %v, want %v", text, got, want)
		}
	}
}

func header(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		h.Add(name, value)
	}
	return h
}

func FuzzFresh(f *testing.F) {
	f.Add("max-age=60, no-cache=\"a,b\"", "3", "Tue, 24 Nov 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, control, age, expires string) {
		h := http.Header{"Cache-Control": {control}, "Age": {age}, "Expires": {expires}, "Date": {"Tue, 24 Nov 2026 12:00:00 GMT"}}
		if got := (&object{Source: &Source{}}).fresh(h); got < notKept {
			t.Errorf("%v", got)
		}
	})
}

// That an object has not changed is believed of a server that was asked, and says it of the version that was asked for.
func TestNotModified(t *testing.T) {
	const tag, date = `"v1"`, "Tue, 24 Nov 2026 12:00:00 GMT"
	for name, in := range map[string]struct {
		held, says string // says is a header of the answer 304
		title      string // empty: it is believed
		fetched    bool
	}{
		"asked":                    {held: tag},
		"asked, with the tag":      {held: tag, says: "ETag: " + tag},
		"asked, with the date":     {held: date, says: "Last-Modified: " + date},
		"asked, with another tag":  {held: tag, says: `ETag: "v2"`, fetched: true},
		"asked, with another date": {held: date, says: "Last-Modified: Mon, 23 Nov 2026 12:00:00 GMT", fetched: true},
		"not asked":                {title: "StoreUnavailable"},
		"not asked, with the tag":  {says: "ETag: " + tag, title: "StoreUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			var answers atomic.Int32
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if answers.Add(1) > 1 && in.fetched && r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since") == "" {
					w.Header().Set("ETag", `"v2"`)
					http.ServeContent(w, r, "", time.Time{}, strings.NewReader("newer"))
					return
				}
				for name, values := range header(in.says) {
					w.Header()[name] = values
				}
				w.Header().Set("Cache-Control", "max-age=60")
				w.WriteHeader(http.StatusNotModified)
			}))
			s, err := New(Config{Store: "web", Buckets: []string{host}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			sink := &sourcetest.Sink{}
			err = s.Fetch(t.Context(), ref("http", host, "k"), in.held, sink.Begin)
			unchanged, is := errors.AsType[*source.Unchanged](err)
			switch {
			case in.title != "":
				if problem.Of(err).Title != in.title {
					t.Errorf("got %v", err)
				}
			case in.fetched:
				if err != nil || string(sink.Content) != "newer" {
					t.Errorf("got %q, %v", sink.Content, err)
				}
			case !is || unchanged.Fresh != time.Minute:
				t.Errorf("got %v", err)
			}
		})
	}
}
