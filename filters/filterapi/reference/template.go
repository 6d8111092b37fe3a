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

// Template makes a request's input reference out of what the request says. The zero value is not
// usable: ParseTemplate makes templates.
type Template struct {
	kind   Kind
	bucket part
	key    []part
	route  Route
	fields []field // what the placeholders name, each once, in order of appearance
}

// Request is what a template sees of a request.
type Request struct {
	// Header returns the values of a header by its name in lower case.
	Header func(name string) []string
	// Target is the request's path and query as they came, nothing of them decoded.
	Target string
	// Plain tells that values of headers are not encoded, as urldecode takes them to be.
	Plain bool
}

// Error says which part of a request keeps its input reference from being made. It never repeats
// a value, which is the client's.
type Error struct {
	// Field is "header <name>", "query <name>" or "path"; several are separated by ", " when only
	// together they make a wrong key.
	Field string
	// Problem completes the sentence that starts with the field.
	Problem string
}

func (e *Error) Error() string { return e.Field + " " + e.Problem }

// Join returns the text of the template for an input reference whose {path.<name>} are the
// variables of a route. Without a route it is the reference alone.
func Join(route, reference string) string {
	if route == "" {
		return reference
	}
	return route + " " + reference
}

// ParseTemplate reads a template such as s3://videos/{header.x-key},
// redis://jobs/{query.job|urldecode} or https://models.example.com/{header.x-model}. The bucket is
// a literal or one placeholder, the key a mixture of both. There is no way to escape a brace, and
// only what goes through urldecode is decoded. A route and a space may come first, as Join writes
// them.
func ParseTemplate(s string) (Template, error) {
	var route Route
	if strings.HasPrefix(s, "/") {
		text, reference, _ := strings.Cut(s, " ")
		var err error
		if route, err = ParseRoute(text); err != nil {
			return Template{}, fmt.Errorf("path: %w", err)
		}
		s = reference
	}
	if len(s) > MaxTemplateBytes {
		return Template{}, fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), MaxTemplateBytes)
	}
	k, rest, ok := cutKind(s)
	if !ok {
		return Template{}, errors.New(OtherStore())
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
		return Template{}, errors.New("bucket: must be a name or exactly one placeholder, such as {header.<name>}")
	}
	keyParts, err := parseParts(key)
	if err != nil {
		return Template{}, fmt.Errorf("key: %w", err)
	}
	t := Template{kind: k, bucket: bucketParts[0], key: keyParts, route: route}
	if t.bucket.isLiteral() {
		if problem := k.Bucket.Problem(t.bucket.literal); problem != "" {
			return Template{}, fmt.Errorf("bucket %q %s", t.bucket.literal, problem)
		}
	}
	// What is wrong with a harmless value in each placeholder is wrong with any.
	harmless, _ := expand(keyParts, func(part) (string, error) { return "x", nil })
	if problem := keyProblem(harmless); problem != "" {
		return Template{}, fmt.Errorf("key %s", problem)
	}
	placeholders := 0
	for _, p := range append(bucketParts, keyParts...) {
		if p.isLiteral() {
			continue
		}
		placeholders++
		if t.index(p.field) < 0 {
			t.fields = append(t.fields, p.field)
		}
	}
	if placeholders > MaxPlaceholders {
		return Template{}, fmt.Errorf("has %d placeholders, at most %d are allowed", placeholders, MaxPlaceholders)
	}
	return t, nil
}

// expand joins literals and what value says of the other parts.
func expand(parts []part, value func(part) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		text := p.literal
		if !p.isLiteral() {
			var err error
			if text, err = value(p); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Expand returns the reference for a request. When the template has placeholders and the request
// has nothing that they name, ok is false without an error: the request has no stored input. A
// field that is there twice is refused: the function might read the other one. An error is an
// *Error.
//
// In the result the bucket ends at the first slash after the scheme, and all that follows is
// the key, byte for byte.
func (t Template) Expand(r Request) (ref string, ok bool, err error) {
	values, err := t.values(r)
	if err != nil || values == nil {
		return "", false, err
	}
	bucket, err := expand([]part{t.bucket}, func(p part) (string, error) { return t.value(p, values, r) })
	if err != nil {
		return "", false, err
	}
	if problem := t.kind.Bucket.Problem(bucket); problem != "" {
		return "", false, &Error{t.bucket.field.String(), "is not a bucket name: it " + problem}
	}
	key, err := expand(t.key, func(p part) (string, error) {
		text, err := t.value(p, values, r)
		if problem := keyTextProblem(text); err == nil && problem != "" {
			err = &Error{p.field.String(), "is not fit for an object key: it " + problem}
		}
		return text, err
	})
	if err != nil {
		return "", false, err
	}
	if problem := keyProblem(key); problem != "" {
		return "", false, &Error{names(t.key), "makes an object key that " + problem}
	}
	return Reference{t.kind.Scheme, bucket, key}.String(), true, nil
}

// Makes tells whether some request can have the template make the reference.
func (t Template) Makes(r Reference) bool {
	return r.Scheme == t.kind.Scheme && (!t.bucket.isLiteral() || t.bucket.literal == r.Bucket) && t.makesKey(r.Key)
}

// makesKey goes through the parts with all places in the key where each of them may begin.
func (t Template) makesKey(key string) bool {
	begins := make([]bool, len(key)+1)
	begins[0] = true
	for _, p := range t.key {
		next := make([]bool, len(key)+1)
		within := false // a value that has begun goes on
		for i := range begins {
			if p.isLiteral() {
				if begins[i] && strings.HasPrefix(key[i:], p.literal) {
					next[i+len(p.literal)] = true
				}
				continue
			}
			within = within || begins[i]
			next[i] = within
			if i < len(key) && key[i] == '/' && p.field.from == fromPath && !t.route.whole(p.field.name) {
				within = false
			}
		}
		begins = next
	}
	return begins[len(key)]
}

// value is a part's text in a reference.
func (t Template) value(p part, values []string, r Request) (string, error) {
	text, problem := p.filtered(values[t.index(p.field)], r.Plain && p.field.from == fromHeader)
	// What was decoded must not become more segments than the variable stands for.
	if p.field.from == fromPath && !t.route.whole(p.field.name) && strings.Contains(text, "/") {
		problem = "has a slash that is encoded in a segment"
	}
	if problem != "" {
		return "", &Error{p.field.String(), "is not fit for a reference: it " + problem}
	}
	return text, nil
}

// index is where the template has the field, -1 if it has not.
func (t Template) index(f field) int {
	return slices.IndexFunc(t.fields, func(g field) bool { return g.from == f.from && g.name == f.name })
}

// values are those of the template's fields in a request, all of them; nil if it has none.
func (t Template) values(r Request) ([]string, error) {
	values := make([]string, 0, len(t.fields))
	path, query, _ := strings.Cut(r.Target, "?")
	captured := t.route.match(path)
	var missing *Error
	for _, f := range t.fields {
		found := f.in(r, query, captured)
		switch {
		case len(found) > 1:
			return nil, &Error{f.String(), "is given more than once"}
		case len(found) == 1:
			values = append(values, found[0])
		case missing == nil && f.from == fromPath:
			missing = &Error{
				f.String(), "is not of the form of the function's, and the input cannot be named without it",
			}
		case missing == nil:
			missing = &Error{f.String(), "is missing, and the input cannot be named without it"}
		}
	}
	switch {
	case len(values) == 0 && len(t.fields) > 0:
		return nil, nil
	case missing != nil:
		return nil, missing
	}
	return values, nil
}

// in returns the values that a request has of the field.
func (f field) in(r Request, query string, captured map[string]string) []string {
	switch f.from {
	case fromHeader:
		return r.Header(f.name)
	case fromPath:
		if value, ok := captured[f.name]; ok {
			return []string{value}
		}
		return nil
	}
	return parameters(query, f.name)
}

// parameters returns the values of a query's parameter. Its name is compared as it stands, as
// gateways' routes do; with one that is so only once decoded it is there twice, for the function
// may read that one.
func parameters(query, name string) []string {
	var found, others []string
	for rest := query; rest != ""; {
		var parameter string
		parameter, rest, _ = strings.Cut(rest, "&")
		is, value, _ := strings.Cut(parameter, "=")
		if is == name {
			found = append(found, value)
		} else if decoded, _ := unescape(is, true); decoded == name {
			others = append(others, value)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return append(found, others...)
}

// names are the fields of all placeholders, as errors name them: "header a, b, path".
func names(parts []part) string {
	var seen, named []string
	last := ""
	for _, p := range parts {
		name := p.field.String()
		if p.isLiteral() || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		if p.field.from == last {
			name = p.field.name
		}
		named, last = append(named, name), p.field.from
	}
	return strings.Join(named, ", ")
}

// Headers are the lower-case names of the headers that the template names, each once.
func (t Template) Headers() []string { return t.named(fromHeader) }

// Parameters are the names of the query's parameters that the template names, each once.
func (t Template) Parameters() []string { return t.named(fromQuery) }

// Variables are the names of the path's variables that the template names, each once.
func (t Template) Variables() []string { return t.named(fromPath) }

func (t Template) named(from string) []string {
	var all []string
	for _, f := range t.fields {
		if f.from == from {
			all = append(all, f.name)
		}
	}
	return all
}

// Route is what the template's variables are of.
func (t Template) Route() Route { return t.route }

// Scheme is what the template's references begin with, without the "://".
func (t Template) Scheme() string { return t.kind.Scheme }

// Bucket is the bucket of all of the template's references. ok is false if a request names it.
func (t Template) Bucket() (bucket string, ok bool) { return t.bucket.literal, t.bucket.isLiteral() }
