package filterapi

import (
	"errors"
	"fmt"
	"strings"
)

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
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }) {
		return fmt.Errorf("%.64q is not a header name", name)
	}
	if lower := strings.ToLower(name); lower != name {
		return fmt.Errorf("{header.%.64s}: write header names in lower case: {header.%.64s}", name, lower)
	}
	if strings.HasPrefix(name, headerPrefix) {
		return fmt.Errorf("{header.%.64s}: %s* headers are the gateway's own and never reach it from a client", name, headerPrefix)
	}
	if reason, refused := refusedHeaders[name]; refused {
		return fmt.Errorf("{header.%s}: %s", name, reason)
	}
	return nil
}

// isTokenRune says whether r may be part of a field name (RFC 9110, section 5.6.2).
func isTokenRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
