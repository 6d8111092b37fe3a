package filterapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxTemplateBytes leaves room for a key of MaxKeyBytes, a bucket, and the names in
	// the placeholders.
	MaxTemplateBytes = 2048
	// MaxPlaceholders bounds the headers that one request is searched for.
	MaxPlaceholders = 8
)

// kind is a kind of reference: what it begins with, and what stands before its key.
type kind struct {
	scheme string
	// place is what the part between scheme and key is called.
	place   string
	problem func(place string) string
}

// kinds are all that references may be.
var kinds = []kind{
	{"s3", "bucket", bucketProblem},
	{"redis", "keyspace", keyspaceProblem},
	{"http", "host", hostProblem},
	{"https", "host", hostProblem},
}

// Schemes returns what references may begin with, without the "://".
func Schemes() []string {
	schemes := make([]string, len(kinds))
	for i, k := range kinds {
		schemes[i] = k.scheme
	}
	return schemes
}

// cutKind returns the kind of a reference or template, and what follows the scheme.
func cutKind(s string) (kind, string, bool) {
	for _, k := range kinds {
		if rest, ok := strings.CutPrefix(s, k.scheme+"://"); ok {
			return k, rest, true
		}
	}
	return kind{}, "", false
}

// Template makes a request's input reference out of its headers. The zero value is
// not usable: ParseTemplate makes templates.
type Template struct {
	kind    kind
	place   part
	key     []part
	headers []string // each placeholder's header once, in order of appearance
}

// ReferenceError says which header keeps a request's input reference from being
// made. It never repeats the header's value, which is the client's.
type ReferenceError struct {
	// Header is one lower-case name, or several separated by ", " when only together
	// they make a wrong key.
	Header string
	// Problem completes the sentence that starts with the header's name.
	Problem string
}

func (e *ReferenceError) Error() string { return "header " + e.Header + " " + e.Problem }

// ParseTemplate reads a template such as s3://videos/{header.x-key},
// redis://jobs/{header.x-job} or https://models.example.com/{header.x-model}. What stands
// before the key (the bucket, keyspace or host) is a literal or one placeholder, the key a
// mixture of both. There is no way to escape a brace, and nothing is percent-decoded.
func ParseTemplate(s string) (Template, error) {
	if len(s) > MaxTemplateBytes {
		return Template{}, fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), MaxTemplateBytes)
	}
	k, rest, ok := cutKind(s)
	if !ok {
		return Template{}, errors.New("must start with s3://, redis://, http:// or https://: no other store is supported")
	}
	place, key, ok := strings.Cut(rest, "/")
	if !ok {
		return Template{}, fmt.Errorf("has no key: write %s://<%s>/<key>", k.scheme, k.place)
	}
	placeParts, err := parseParts(place)
	if err != nil {
		return Template{}, fmt.Errorf("%s: %w", k.place, err)
	}
	if len(placeParts) != 1 {
		return Template{}, fmt.Errorf("%s: must be a name or exactly one {header.<name>}", k.place)
	}
	keyParts, err := parseParts(key)
	if err != nil {
		return Template{}, fmt.Errorf("key: %w", err)
	}
	t := Template{kind: k, place: placeParts[0], key: keyParts}
	if t.place.header == "" {
		if problem := k.problem(t.place.literal); problem != "" {
			return Template{}, fmt.Errorf("%s %q %s", k.place, t.place.literal, problem)
		}
	}
	// What is wrong with a harmless value in each placeholder is wrong with any.
	if problem := keyProblem(join(t.key, func(string) string { return "x" })); problem != "" {
		return Template{}, fmt.Errorf("key %s", problem)
	}
	placeholders := 0
	for _, p := range append(placeParts, keyParts...) {
		if p.header == "" {
			continue
		}
		placeholders++
		if !slices.Contains(t.headers, p.header) {
			t.headers = append(t.headers, p.header)
		}
	}
	if placeholders > MaxPlaceholders {
		return Template{}, fmt.Errorf("has %d placeholders, at most %d are allowed", placeholders, MaxPlaceholders)
	}
	return t, nil
}

// Expand returns the reference for the headers that get finds; get is asked once per
// header, in lower case. When the template names headers and the request has none of
// them, ok is false without an error: the request has no stored input. An error is a
// *ReferenceError.
//
// In the result the bucket, keyspace or host ends at the first slash after the scheme, and all that
// follows is the key, byte for byte.
func (t Template) Expand(get func(header string) (string, bool)) (ref string, ok bool, err error) {
	values := make(map[string]string, len(t.headers))
	missing := ""
	for _, h := range t.headers {
		if v, found := get(h); found {
			values[h] = v
		} else if missing == "" {
			missing = h
		}
	}
	if len(values) == 0 && len(t.headers) > 0 {
		return "", false, nil
	}
	if missing != "" {
		return "", false, &ReferenceError{missing, "is missing, and the input cannot be named without it"}
	}
	value := func(header string) string { return values[header] }

	place := join([]part{t.place}, value)
	if t.place.header != "" {
		if problem := t.kind.problem(place); problem != "" {
			return "", false, &ReferenceError{t.place.header, "is not a " + t.kind.place + " name: it " + problem}
		}
	}
	key, err := t.expandKey(value)
	if err != nil {
		return "", false, err
	}
	return t.kind.scheme + "://" + place + "/" + key, true, nil
}

// Headers are the lower-case names of the headers that the template names, each once.
func (t Template) Headers() []string { return slices.Clone(t.headers) }

// Scheme is what the template's references begin with, without the "://".
func (t Template) Scheme() string { return t.kind.scheme }

// Place is the bucket, keyspace or host of all of the template's references. ok is false if
// a header names it.
func (t Template) Place() (place string, ok bool) { return t.place.literal, t.place.header == "" }

// PlaceName is what that is called: bucket, keyspace or host.
func (t Template) PlaceName() string { return t.kind.place }

func (t Template) expandKey(value func(header string) string) (string, error) {
	var headers []string
	for _, p := range t.key {
		if p.header == "" {
			continue
		}
		if problem := keyTextProblem(value(p.header)); problem != "" {
			return "", &ReferenceError{p.header, "is not fit for an object key: it " + problem}
		}
		if !slices.Contains(headers, p.header) {
			headers = append(headers, p.header)
		}
	}
	key := join(t.key, value)
	if problem := keyProblem(key); problem != "" {
		return "", &ReferenceError{strings.Join(headers, ", "), "makes an object key that " + problem}
	}
	return key, nil
}
