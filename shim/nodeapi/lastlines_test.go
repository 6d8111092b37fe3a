package nodeapi_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestLastLines(t *testing.T) {
	many := strings.Repeat("early\n", 50) + strings.Repeat("late\n", 10)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":            {"", nil},
		"empty lines":        {"\n\n  \r\n", nil},
		"the last ones":      {many, strings.Split(strings.TrimSpace(strings.Repeat("late\n", 10)), "\n")},
		"a line without end": {"one\ntwo", []string{"one", "two"}},
		"colors":             {"\x1b[31mKeyError\x1b[0m: 'DB'\n", []string{"KeyError: 'DB'"}},
		"a stack's indents":  {"Traceback:\n\tin main\n", []string{"Traceback:", " in main"}},
		"what moves cursors": {"a\x1b]0;title\x07b\rc\u202ed\n", []string{"a�]0;title�b c�d"}},
		"not UTF-8":          {"a\xffb", []string{"a�b"}},
		"a long line":        {strings.Repeat("é", 400), []string{strings.Repeat("é", 248) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, nodeapi.LastLines(c.text)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Whatever a function writes, what is kept of it is little, and a terminal obeys none of it.
func FuzzLastLines(f *testing.F) {
	f.Add("\x1b[\x1b[0m2J\nx")
	f.Add("\xff\xfe\n\u2028")
	f.Fuzz(func(t *testing.T, text string) {
		lines := nodeapi.LastLines(text)
		if len(lines) > 10 {
			t.Errorf("%d lines", len(lines))
		}
		for _, l := range lines {
			if l == "" || len(l) > 500 || !utf8.ValidString(l) || strings.ContainsFunc(l, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("kept %q", l)
			}
		}
		if d := cmp.Diff(lines, nodeapi.LastLines(strings.Join(lines, "\n"))); d != "" {
			t.Errorf("not the same again: %s", d)
		}
	})
}
