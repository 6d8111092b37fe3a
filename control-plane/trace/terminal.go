package trace

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// printable returns s as one line without anything that a terminal obeys or that takes
// no column of its own: control and format characters, combining marks.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.Is(unicode.M, r):
			return -1
		case !unicode.IsPrint(r): // controls, format and bidi characters, exotic spaces
			return '?'
		}
		return r
	}, s)
}

// columns returns how many columns of a terminal s takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// columnsOf follows Unicode Standard Annex 11.
func columnsOf(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// fit returns s cut to so many columns, with an ellipsis where it is cut.
func fit(s string, limit int) string {
	if columns(s) <= limit {
		return s
	}
	if limit <= 0 {
		return ""
	}
	used := 0
	for i, r := range s {
		if used += columnsOf(r); used > limit-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// wrapped returns s in parts of at most so many columns, which are 2 or more: the cause is often
// at the end.
func wrapped(s string, limit int) (parts []string) {
	begin, used := 0, 0
	for i, r := range s {
		n := columnsOf(r)
		if used+n > limit {
			parts = append(parts, s[begin:i])
			begin, used = i, 0
		}
		used += n
	}
	return append(parts, s[begin:])
}

// pad returns s filled with spaces up to so many columns.
func pad(s string, to int) string {
	return s + strings.Repeat(" ", max(0, to-columns(s)))
}

// painter adds ANSI colors, or none when false.
type painter bool

func (p painter) paint(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) bold(s string) string   { return p.paint("1", s) }
func (p painter) dim(s string) string    { return p.paint("2", s) }
func (p painter) red(s string) string    { return p.paint("31", s) }
func (p painter) yellow(s string) string { return p.paint("33", s) }

// service returns the color of a service's bars, of the 16 that every terminal has.
func (p painter) service(name string) func(string) string {
	code := "37"
	switch name {
	case tracing.ServiceGateway:
		code = "34"
	case tracing.ServiceControlPlane:
		code = "35"
	case tracing.ServiceNode:
		code = "36"
	case tracing.ServiceShim:
		code = "33"
	}
	return func(s string) string { return p.paint(code, s) }
}
