package reference

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxRouteBytes is more than the paths of services have.
const MaxRouteBytes = 512

// literalByte are the characters of a route's literals: those that no client needs to encode
// (RFC 3986, sections 2.3 and 3.3).
const literalByte = "A-Za-z0-9._~:@-"

// Route is a URI template (RFC 6570) of the paths that a function answers: segments that are
// literals or {name}, and at the end perhaps {+name} for all that is left of the path. The zero
// Route matches no path.
type Route struct{ segments []segment }

// segment is a literal, or a variable.
type segment struct {
	literal, name string
	rest          bool
}

// ParseRoute reads a route such as /videos/{camera}/{+key}.
func ParseRoute(s string) (Route, error) {
	if len(s) > MaxRouteBytes {
		return Route{}, fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), MaxRouteBytes)
	}
	path, ok := strings.CutPrefix(s, "/")
	if !ok {
		return Route{}, errors.New("must begin with a slash")
	}
	var r Route
	for _, text := range strings.Split(path, "/") { // once for each configuration
		if len(r.segments) > 0 && r.segments[len(r.segments)-1].rest {
			return Route{}, errors.New("has more after {+<name>}, which stands for all that is left")
		}
		next, err := parseSegment(text)
		if err != nil {
			return Route{}, err
		}
		if next.name != "" && slices.Contains(r.Names(), next.name) {
			return Route{}, fmt.Errorf("has the variable %.64q twice", next.name)
		}
		r.segments = append(r.segments, next)
	}
	return r, nil
}

func parseSegment(text string) (segment, error) {
	name, ok := strings.CutPrefix(text, "{")
	if !ok {
		if strings.Trim(text, ".") == "" || !consists(text, literalByte) {
			return segment{}, fmt.Errorf(
				"has the segment %.64q: a segment is {<name>}, or letters, digits and - . _ ~ : @", text)
		}
		return segment{literal: text}, nil
	}
	name, closed := strings.CutSuffix(name, "}")
	name, rest := strings.CutPrefix(name, "+")
	if !closed || name == "" || !consists(name, pathName) {
		return segment{}, fmt.Errorf(
			"has the segment %.64q: a variable is a segment of its own, {<name>} of letters, digits and _", text)
	}
	return segment{name: name, rest: rest}, nil
}

// Names are the route's variables.
func (r Route) Names() []string {
	var names []string
	for _, s := range r.segments {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	return names
}

// whole says whether the variable stands for all that is left of the path.
func (r Route) whole(name string) bool {
	last := len(r.segments) - 1
	return last >= 0 && r.segments[last].rest && r.segments[last].name == name
}

// Pattern is a regular expression (RE2) of the paths, without a query, that the route matches.
func (r Route) Pattern() string {
	var b strings.Builder
	for _, s := range r.segments {
		b.WriteString("/")
		switch {
		case s.rest:
			b.WriteString(".+")
		case s.name != "":
			b.WriteString("[^/]+")
		default:
			b.WriteString(strings.ReplaceAll(s.literal, ".", "[.]"))
		}
	}
	return b.String()
}

// match returns the values of the variables in a path, as they stand there; nil if the path is
// another one.
func (r Route) match(path string) map[string]string {
	if len(r.segments) == 0 {
		return nil
	}
	values := make(map[string]string)
	for i, s := range r.segments {
		rest, ok := strings.CutPrefix(path, "/")
		if !ok {
			return nil
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 || s.rest {
			end = len(rest)
		}
		text := rest[:end]
		path = rest[end:]
		switch {
		case text == "" || s.name == "" && text != s.literal || i == len(r.segments)-1 && path != "":
			return nil
		case s.name != "":
			values[s.name] = text
		}
	}
	return values
}

// RoutePattern is a regular expression (RE2) of what ParseRoute takes, but for its length and
// variables that are there twice.
func RoutePattern() string {
	const literal = `[.]*[A-Za-z0-9_~:@-][` + literalByte + `]*`
	const variable = `\{[` + pathName + `]+\}`
	return `(/(` + literal + `|` + variable + `))*/(` + literal + `|` + variable + `|\{\+[` + pathName + `]+\})`
}
