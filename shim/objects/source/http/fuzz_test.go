package http

import (
	"net/http"
	"testing"
	"time"
)

// A version is a strong validator of the server's own, or none.
func FuzzVersion(f *testing.F) {
	const changed, now = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"
	for _, tag := range []string{`"a"`, `W/"a"`, `"`, `""`, `a`, ``} {
		f.Add(tag, changed, now)
		f.Add(tag, changed, changed)
		f.Add(tag, "yesterday", now)
	}
	f.Fuzz(func(t *testing.T, tag, changed, now string) {
		h := http.Header{"Etag": {tag}, "Last-Modified": {changed}, "Date": {now}}
		switch v := version(h); v {
		case "":
		case tag:
			if v[0] != '"' || v[len(v)-1] != '"' || len(v) < 2 {
				t.Errorf("%q is taken for a strong entity tag", v)
			}
		case changed:
			then, err := http.ParseTime(changed)
			at, wrong := http.ParseTime(now)
			if err != nil || wrong != nil || at.Sub(then) < time.Second {
				t.Errorf("%q is taken for a strong validator at %q", changed, now)
			}
		default:
			t.Errorf("the version is %q", v)
		}
	})
}
