package field_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

func TestError(t *testing.T) {
	for _, tt := range []struct {
		err  field.Error
		want string
	}{
		{field.Error{Field: "a.b", Problem: "is missing", Fix: "add it"}, "a.b: is missing; add it"},
		{field.Error{Field: "a.b", Value: "7\n", Problem: "is odd", Fix: "use 8"}, `a.b: "7\n" is odd; use 8`},
		{field.Error{Field: "a", Value: "https://me:pa/ss@host/x", Problem: "is wrong", Fix: "fix it"}, `a: "https://***@host/x" is wrong; fix it`},
		{field.Error{Field: "a", Value: "me:secret@host", Problem: "is wrong", Fix: "fix it"}, `a: "***@host" is wrong; fix it`},
		{field.Error{Field: "a", Value: strings.Repeat("é", 65), Problem: "is long", Fix: "cut it"}, `a: "` + strings.Repeat("é", 64) + `…" is long; cut it`},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestErrorsListAll(t *testing.T) {
	var none field.Errors
	if err := none.Err(); err != nil {
		t.Errorf("no problem is the error %v", err)
	}
	var many field.Errors
	for i := range 40 {
		many = append(many, &field.Error{Field: fmt.Sprint(i), Problem: "is wrong", Fix: "fix it"})
	}
	lines := strings.Split(many.Err().Error(), "\n")
	if got, want := lines[len(lines)-1], "and 8 more problems"; got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	var one *field.Error
	if !errors.As(many.Err(), &one) || one.Field != "0" {
		t.Errorf("errors.As finds %v, want the first problem", one)
	}
}

func TestIsLabel(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "a-1": true, "0": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a\n": false, "../a": false, strings.Repeat("a", 64): false,
	} {
		if got := field.IsLabel(s); got != want {
			t.Errorf("IsLabel(%q) = %t, want %t", s, got, want)
		}
	}
}

func TestMessagesStayOnOneShortLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		for _, got := range []string{field.Quote(s), field.Name(s)} {
			if strings.ContainsAny(got, "\n\r\x1b") || len(got) > 1024 {
				t.Fatalf("%q becomes %q", s, got)
			}
		}
	})
}
