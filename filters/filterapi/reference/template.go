package reference

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

// Template makes a request's input reference out of its headers. The zero value is
// not usable: ParseTemplate makes templates.
type Template struct {
	kind    Kind
	bucket  part
	key     []part
	headers []string // each placeholder's header once, in order of appearance
}

// Error says which header keeps a request's input reference from being
// made. It never repeats the header's value, which is the client's.
type Error struct {
	// Header is one lower-case name, or several separated by ", " when only together
	// they make a wrong key.
	Header string
	// Problem completes the sentence that starts with the header's name.
	Problem string
}

func (e *Error) Error() string { return "header " + e.Header + " " + e.Problem }

// ParseTemplate reads a template such as s3://videos/{header.x-key},
// redis://jobs/{header.x-job} or https://models.example.com/{header.x-model}. The bucket is
// a literal or one placeholder, the key a mixture of both. There is no way to escape a brace, and
// nothing is percent-decoded.
func ParseTemplate(s string) (Template, error) {
	if len(s) > MaxTemplateBytes {
		return Template{}, fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), MaxTemplateBytes)
	}
	k, rest, ok := cutKind(s)
	if !ok {
		return Template{}, errors.New(OtherStore)
	}
	bucket, key, ok := strings.Cut(rest, "/")
	if !ok {
		return Template{}, errors.New(NoKey)
	}
	bucketParts, err := parseParts(bucket)
	if err != nil {
		return Template{}, fmt.Errorf("bucket: %w", err)
	}
	if len(bucketParts) != 1 {
		return Template{}, errors.New("bucket: must be a name or exactly one {header.<name>}")
	}
	keyParts, err := parseParts(key)
	if err != nil {
		return Template{}, fmt.Errorf("key: %w", err)
	}
	t := Template{kind: k, bucket: bucketParts[0], key: keyParts}
	if t.bucket.header == "" {
		if problem := k.Bucket.Problem(t.bucket.literal); problem != "" {
			return Template{}, fmt.Errorf("bucket %q %s", t.bucket.literal, problem)
		}
	}
	// What is wrong with a harmless value in each placeholder is wrong with any.
	if problem := keyProblem(join(t.key, func(string) string { return "x" })); problem != "" {
		return Template{}, fmt.Errorf("key %s", problem)
	}
	placeholders := 0
	for _, p := range append(bucketParts, keyParts...) {
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
// *Error.
//
// In the result the bucket ends at the first slash after the scheme, and all that follows is
// the key, byte for byte.
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
		return "", false, &Error{missing, "is missing, and the input cannot be named without it"}
	}
	value := func(header string) string { return values[header] }

	bucket := join([]part{t.bucket}, value)
	if t.bucket.header != "" {
		if problem := t.kind.Bucket.Problem(bucket); problem != "" {
			return "", false, &Error{t.bucket.header, "is not a bucket name: it " + problem}
		}
	}
	key, err := t.expandKey(value)
	if err != nil {
		return "", false, err
	}
	return Reference{t.kind.Scheme, bucket, key}.String(), true, nil
}

// Headers are the lower-case names of the headers that the template names, each once.
func (t Template) Headers() []string { return slices.Clone(t.headers) }

// Scheme is what the template's references begin with, without the "://".
func (t Template) Scheme() string { return t.kind.Scheme }

// Bucket is the bucket of all of the template's references. ok is false if a header names it.
func (t Template) Bucket() (bucket string, ok bool) { return t.bucket.literal, t.bucket.header == "" }

func (t Template) expandKey(value func(header string) string) (string, error) {
	var headers []string
	for _, p := range t.key {
		if p.header == "" {
			continue
		}
		if problem := keyTextProblem(value(p.header)); problem != "" {
			return "", &Error{p.header, "is not fit for an object key: it " + problem}
		}
		if !slices.Contains(headers, p.header) {
			headers = append(headers, p.header)
		}
	}
	key := join(t.key, value)
	if problem := keyProblem(key); problem != "" {
		return "", &Error{strings.Join(headers, ", "), "makes an object key that " + problem}
	}
	return key, nil
}
