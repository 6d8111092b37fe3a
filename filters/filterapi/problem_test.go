package filterapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What a filter answers with is read as any problem is.
func TestProblemsAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return strings.ToValidUTF8(rapid.String().Draw(t, name), "") }
		want := Problem{Type: text("type"), Title: text("title"), Status: rapid.IntRange(100, 599).Draw(t, "status"), Detail: text("detail"),
			Function: text("function"), Field: text("field"), Request: text("request")}
		var got Problem
		if err := json.Unmarshal(want.JSON(), &got); err != nil {
			t.Fatalf("%s: %v", want.JSON(), err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
