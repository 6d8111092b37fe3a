package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OwnHeaders begins the names of all headers of the project's own.
const OwnHeaders = "x-headstart-"

// What placeholders name, each with the characters of its names, as Names has them: a field name
// in lower case (RFC 9110, section 5.6.2) without the bar, which begins a modifier; what a query
// holds without being encoded (RFC 3986, section 2.3); and a variable of a Route.
const (
	fromHeader = "header"
	fromQuery  = "query"
	fromPath   = "path"

	headerName = "a-z0-9!#$%&'*+.^_`~-"
	queryName  = "A-Za-z0-9._~-"
	pathName   = "A-Za-z0-9_"
)

// The modifiers of placeholders.
const (
	urlDecode  = "urldecode"
	trimPrefix = "trimprefix:"
	// maxModifiers is more than values need: trim, decode, trim.
	maxModifiers = 4
)

// refusedHeaders may not be part of a reference, each for its reason.
var refusedHeaders = map[string]string{
	"host":                "it is the authority, which already chose the function",
	"authorization":       "it holds credentials, and references appear in logs and traces",
	"proxy-authorization": "it holds credentials, and references appear in logs and traces",
	"cookie":              "it holds credentials, and references appear in logs and traces",
}

// field is what a placeholder names in a request.
type field struct{ from, name string }

// String is the field as errors name it. All variables of a path are one field.
func (f field) String() string {
	if f.from == fromPath {
		return fromPath
	}
	return f.from + " " + f.name
}

// part is a literal, or a field with the modifiers that its value goes through.
type part struct {
	literal   string
	field     field
	modifiers []string
}

func (p part) isLiteral() bool { return p.field.from == "" }

// filtered returns the value as the modifiers leave it, or completes "it ...". plain values are not
// encoded.
func (p part) filtered(value string, plain bool) (text, problem string) {
	for _, f := range p.modifiers {
		if prefix, ok := strings.CutPrefix(f, trimPrefix); ok {
			value = strings.TrimPrefix(value, prefix)
		} else if !plain {
			decoded, ok := unescape(value, p.field.from == fromQuery)
			if !ok {
				return "", "has a % that two hexadecimal digits do not follow"
			}
			value = decoded
		}
	}
	return value, ""
}

// unescape decodes what is percent-encoded (RFC 3986, section 2.1), once. In a query a plus sign
// is a space, as HTML forms and S3's notifications write it.
func unescape(s string, query bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+' && query:
			b.WriteByte(' ')
		case c == '%':
			if i+2 >= len(s) || !consists(s[i+1:i+3], "0-9A-Fa-f") {
				return "", false
			}
			b.WriteByte(digit(s[i+1])<<4 | digit(s[i+2]))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// digit is the value of a hexadecimal digit.
func digit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
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
		p, err := parsePlaceholder(placeholder)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
		s = rest
	}
	return parts, nil
}

// parsePlaceholder reads what stands between braces.
func parsePlaceholder(s string) (part, error) {
	pieces := strings.Split(s, "|")
	from, name, _ := strings.Cut(pieces[0], ".")
	p := part{field: field{from, name}, modifiers: pieces[1:]}
	var err error
	switch from {
	case fromHeader:
		err = checkHeaderName(name)
	case fromQuery:
		err = checkName(name, queryName, "a parameter's name")
	case fromPath:
		err = checkName(name, pathName, "a variable's name")
	default:
		err = fmt.Errorf("has the unknown placeholder %.64q: known are {header.<name>}, {query.<name>} and {path.<name>}", s)
	}
	if err != nil {
		return part{}, err
	}
	if len(p.modifiers) > maxModifiers {
		return part{}, fmt.Errorf("{%.64s}: has %d modifiers, at most %d are allowed", s, len(p.modifiers), maxModifiers)
	}
	for _, f := range p.modifiers {
		if f != urlDecode && !isTrim(f) {
			return part{}, fmt.Errorf("has the unknown modifier %.64q: known are |urldecode and |trimprefix:<text>", f)
		}
	}
	return p, nil
}

// isTrim says whether the modifier is a trimprefix with a text.
func isTrim(modifier string) bool {
	text, ok := strings.CutPrefix(modifier, trimPrefix)
	return ok && text != "" && utf8.ValidString(text) && !strings.Contains(text, "{") &&
		!strings.ContainsFunc(text, unicode.IsControl)
}

func checkName(name, class, what string) error {
	if name == "" || !consists(name, class) {
		return fmt.Errorf("%.64q is not %s", name, what)
	}
	return nil
}

func checkHeaderName(name string) error {
	if strings.HasPrefix(name, ":") {
		return fmt.Errorf("{header.%.64s}: a pseudo header cannot name an input", name)
	}
	lower := strings.ToLower(name)
	if err := checkName(lower, headerName, "a header name"); err != nil {
		return err
	}
	if lower != name {
		return fmt.Errorf("{header.%.64s}: write header names in lower case: {header.%.64s}", name, lower)
	}
	if strings.HasPrefix(name, OwnHeaders) {
		return fmt.Errorf("{header.%.64s}: %s* headers are the gateway's own and never reach it from a client",
			name, OwnHeaders)
	}
	if reason, refused := refusedHeaders[name]; refused {
		return fmt.Errorf("{header.%s}: %s", name, reason)
	}
	return nil
}

// KeyPlaceholder is a regular expression (RE2) of one placeholder in a key.
func KeyPlaceholder() string { return placeholder(`[^{}|\p{Cc}]`) }

// BucketPlaceholder is one of one in place of a bucket, where a slash ends the bucket.
func BucketPlaceholder() string { return placeholder(`[^{}|/\p{Cc}]`) }

func placeholder(prefix string) string {
	return fmt.Sprintf(`\{(%s\.[%s]+|%s\.[%s]+|%s\.[%s]+)(\|%s|\|%s%s+){0,%d}\}`,
		fromHeader, headerName, fromQuery, queryName, fromPath, pathName, urlDecode, trimPrefix, prefix, maxModifiers)
}

// FieldPattern is a regular expression (RE2) of an Error's Field.
func FieldPattern() string {
	own := fmt.Sprintf("%s [%s]+|%s [%s]+|%s", fromHeader, headerName, fromQuery, queryName, fromPath)
	// After the first of a kind the others are names alone.
	return fmt.Sprintf("(%s)(, (%s|[%s]+|[%s]+)){0,%d}", own, own, headerName, queryName, MaxPlaceholders-1)
}

// RefusedPlaceholder is a regular expression (RE2) of the beginning of a placeholder whose header
// may not be part of a reference.
func RefusedPlaceholder() string {
	names := slices.Sorted(maps.Keys(refusedHeaders))
	return `\{header\.((` + strings.Join(names, "|") + `)[|}]|` + OwnHeaders + `)`
}
