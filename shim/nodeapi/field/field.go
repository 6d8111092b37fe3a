// Package field says what is wrong with one field of what a user or an operator
// wrote, and how to mend it.
package field

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxValue is how many characters of a value an error repeats: enough to recognise it,
// too few to flood a terminal or a log.
const maxValue = 64

// maxShown is how many problems a message lists: a hostile document can hold a hundred
// thousand, and nobody mends more than a screenful at once.
const maxShown = 32

// userinfo finds what stands before the last @ of a URL, where people put passwords. A
// password may hold a slash.
var userinfo = regexp.MustCompile(`(?s)^([a-z0-9]{1,16}://)?.*@`)

// plain is a name or path that needs no quoting in a message: short and printable. The
// ellipsis is Quote's own.
var plain = regexp.MustCompile(`^[ -~…]{1,256}$`)

// Error is one problem with one field.
type Error struct {
	// Field is the whole path of the field, or the annotation's key as it was written.
	Field string
	// Value is what it holds, empty where it does not matter or might be a secret.
	Value string
	// Problem continues a sentence that starts with the value: "is not a number".
	Problem string
	// Fix says what to do, as an imperative.
	Fix string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s; %s", Name(e.Field), e.Problem, e.Fix)
	}
	return fmt.Sprintf("%s: %s %s; %s", Name(e.Field), Quote(e.Value), e.Problem, e.Fix)
}

// Quote returns s for an error message: quoted, cut to 64 characters, and without the
// userinfo of a URL.
func Quote(s string) string {
	s = userinfo.ReplaceAllString(s, "${1}***@")
	if utf8.RuneCountInString(s) <= maxValue {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q", string([]rune(s)[:maxValue])+"…")
}

// Name returns the name of a field, or of a key, that a user made up: as it is when it is
// short and plain, else quoted.
func Name(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return Quote(s)
}

// Errors are all the problems of one object, in a stable order.
type Errors []*Error

// Err returns es, or nil when there is no problem.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

func (es Errors) Error() string { return Lines(es) }

// Unwrap makes each problem visible to errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// Lines returns one line per error, for at most 32 of them.
func Lines[E error](errs []E) string {
	lines := make([]string, 0, min(len(errs), maxShown+1))
	for i, e := range errs {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more problems", len(errs)-maxShown))
			break
		}
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}
