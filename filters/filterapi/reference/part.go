package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OwnHeaders begins the names of all headers of the project's own.
const OwnHeaders = "x-headstart-"

// headerName are the characters of a field name in lower case (RFC 9110, section 5.6.2), as
// Names has them.
const headerName = "a-z0-9!#$%&'*+.^_`|~-"

// refusedHeaders may not be part of a reference, each for its reason.
var refusedHeaders = map[string]string{
	"host":                "it is the authority, which already chose the function",
	"authorization":       "it holds credentials, and references appear in logs and traces",
	"proxy-authorization": "it holds credentials, and references appear in logs and traces",
	"cookie":              "it holds credentials, and references appear in logs and traces",
}

// part is a literal, or the value of a header.
type part struct{ literal, header string }

func join(parts []part, value func(header string) string) string {
	var b strings.Builder
	for _, p := range parts {
		if p.header != "" {
			b.WriteString(value(p.header))
		} else {
			b.WriteString(p.literal)
		}
	}
	return b.String()
}

func parseParts(s string) ([]part, error) {
	var parts []part
	for s != "" {
		open := strings.IndexAny(s, "{}")
		if open < 0 {
			return append(parts, part{literal: s}), nil
		}
		if s[open] == '}' {
			return nil, errors.New("has a } without a {")
		}
		if open > 0 {
			parts = append(parts, part{literal: s[:open]})
		}
		placeholder, rest, ok := strings.Cut(s[open+1:], "}")
		if !ok {
			return nil, errors.New("has a { without a }")
		}
		name, ok := strings.CutPrefix(placeholder, "header.")
		if !ok {
			return nil, fmt.Errorf("has the unknown placeholder %.64q: only {header.<name>} is known", placeholder)
		}
		if err := checkHeaderName(name); err != nil {
			return nil, err
		}
		parts = append(parts, part{header: name})
		s = rest
	}
	return parts, nil
}

func checkHeaderName(name string) error {
	if strings.HasPrefix(name, ":") {
		return fmt.Errorf("{header.%.64s}: a pseudo header cannot name an input", name)
	}
	lower := strings.ToLower(name)
	if name == "" || !consists(lower, headerName) {
		return fmt.Errorf("%.64q is not a header name", name)
	}
	if lower != name {
		return fmt.Errorf("{header.%.64s}: write header names in lower case: {header.%.64s}", name, lower)
	}
	if strings.HasPrefix(name, OwnHeaders) {
		return fmt.Errorf("{header.%.64s}: %s* headers are the gateway's own and never reach it from a client", name, OwnHeaders)
	}
	if reason, refused := refusedHeaders[name]; refused {
		return fmt.Errorf("{header.%s}: %s", name, reason)
	}
	return nil
}

// Placeholder is a regular expression (RE2) of one placeholder, and RefusedPlaceholder of the
// beginning of one whose header may not be part of a reference.
func Placeholder() string { return `\{header\.[` + headerName + `]+\}` }

// RefusedPlaceholder is described with Placeholder.
func RefusedPlaceholder() string {
	names := slices.Sorted(maps.Keys(refusedHeaders))
	return `\{header\.((` + strings.Join(names, "|") + `)\}|` + OwnHeaders + `)`
}
