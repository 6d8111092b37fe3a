package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A program gets by no rules of its network: without that, others could see what it does, and why is said.
func TestClosed(t *testing.T) {
	const rest = `"a":1,"mounts":[{"type":"proc","destination":"/proc"},{"type":"bind","source":"/s","destination":"/in","options":["rbind","ro"]}]`
	for name, tt := range map[string]struct{ before, after, why string }{
		"no capabilities": {`{` + rest + `}`, `{` + rest + `}`, ""},
		"the usual ones": {
			`{` + rest + `,"process":{"b":2,"capabilities":{"bounding":["CAP_CHOWN","CAP_NET_RAW"],"effective":["CAP_NET_RAW"],"permitted":[]}}}`,
			`{` + rest + `,"process":{"b":2,"capabilities":{"bounding":["CAP_CHOWN"],"effective":[],"permitted":[]}}}`, ""},
		"its network's own": {`{"process":{"capabilities":{"bounding":["CAP_NET_ADMIN"]}}}`, "", "its program has CAP_NET_ADMIN"},
		"privileged":        {`{"process":{"capabilities":{"effective":["CAP_CHOWN","CAP_SYS_ADMIN"]}}}`, "", "its program has CAP_SYS_ADMIN"},
		"a volume":          {`{"mounts":[{"type":"bind","source":"/data","destination":"/shared","options":["rbind","rw"]}]}`, "", "it can write to /shared, which others may see"},
	} {
		got, why, err := Closed([]byte(tt.before))
		if err != nil || why != tt.why {
			t.Errorf("%s: %q, %v, want %q", name, why, err, tt.why)
		}
		if tt.why != "" {
			tt.after = tt.before
		}
		if diff := cmp.Diff(value(t, []byte(tt.after)), value(t, got)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	for _, broken := range []string{`[]`, `{"mounts":1}`, `{"process":{"capabilities":{"bounding":[1]}}}`, `{"process":{"capabilities":7}}`} {
		if _, _, err := Closed([]byte(broken)); err == nil {
			t.Errorf("%s is closed", broken)
		}
	}
}
