package program

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
)

// Request is what a call sends.
type Request struct {
	Method string
	URL    *url.URL
	Header http.Header
	// Body is nil if there is none.
	Body []byte
}

// methods are those of the DSL.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions}

// newRequest reads what a call's expression yields. Its errors are for the workflow's author.
func newRequest(v any) (*Request, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the expression yields no object")
	}
	text := func(name string) string { s, _ := m[name].(string); return s }
	r := &Request{Method: strings.ToUpper(text("method")), Header: http.Header{}}
	if !slices.Contains(methods, r.Method) {
		return nil, fmt.Errorf("the method is one of %s", strings.Join(methods, ", "))
	}
	var err error
	if r.URL, err = url.Parse(text("url")); err != nil || r.URL.Scheme != "http" && r.URL.Scheme != "https" || r.URL.Hostname() == "" {
		return nil, fmt.Errorf("the endpoint %.100q is no URL of a server (http://host/path)", text("url"))
	}
	if r.URL.User != nil {
		return nil, errors.New("the endpoint has credentials, which are not supported")
	}
	if err := each(m["query"], "query", func(name, value string) error {
		query := r.URL.Query()
		query.Add(name, value)
		r.URL.RawQuery = query.Encode()
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each(m["headers"], "headers", func(name, value string) error {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("the header %.100q is not valid", name)
		}
		r.Header.Add(name, value)
		return nil
	}); err != nil {
		return nil, err
	}
	if body, set := m["body"]; set && body != nil {
		if s, is := body.(string); is && r.Header.Get("Content-Type") != "" && !isJSON(r.Header.Get("Content-Type")) {
			r.Body = []byte(s)
			return r, nil
		}
		if r.Body, err = expression.Encode(body); err != nil {
			return nil, err
		}
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/json")
		}
	}
	return r, nil
}

// each calls add for the members of an object, whose values are strings, numbers, true or false, or arrays of these.
func each(v any, what string, add func(name, value string) error) error {
	if v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is an object", what)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all, list := m[name].([]any)
		if !list {
			all = []any{m[name]}
		}
		for _, one := range all {
			var value string
			switch one := one.(type) {
			case nil:
				continue
			case string:
				value = one
			case map[string]any, []any:
				return fmt.Errorf("%s: %.100q is neither a string nor a number", what, name)
			default:
				b, err := expression.Encode(one)
				if err != nil {
					return err
				}
				value = string(b)
			}
			if err := add(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Answer is what has come of a call.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Err is why there is no answer, for the run's caller; nil: there is one.
	Err error
}

// output is what the call's task makes of it.
func (a Answer) output(s *Step) (any, *Fault) {
	call, path := s.frame.task.call, s.frame.task.path
	most := http.StatusMultipleChoices
	if call.GetRedirect() {
		most = http.StatusBadRequest
	}
	switch {
	case a.Err != nil:
		return nil, newFault(Communication, http.StatusBadGateway, "Communication Error", path, a.Err)
	case a.Status < http.StatusOK || a.Status >= most:
		status := a.Status
		if status < http.StatusBadRequest { // which is no error's
			status = http.StatusBadGateway
		}
		return nil, newFault(Communication, status, "Communication Error", path, fmt.Errorf("the answer has the status %d", a.Status))
	}
	if call.GetOutput() == "raw" {
		return base64.StdEncoding.EncodeToString(a.Body), nil
	}
	content, err := a.content()
	if err != nil {
		return nil, newFault(Communication, http.StatusBadGateway, "Communication Error", path, err)
	}
	if call.GetOutput() != "response" {
		return content, nil
	}
	headers := map[string]any{}
	for name, values := range a.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return map[string]any{"request": map[string]any{"method": strings.ToLower(s.Request.Method), "uri": s.Request.URL.String()},
		"statusCode": a.Status, "headers": headers, "content": content}, nil
}

// content is the body as a value: that of the JSON if it is some, and else the text.
func (a Answer) content() (any, error) {
	kind := a.Header.Get("Content-Type")
	switch {
	case len(a.Body) == 0:
		return nil, nil
	case isJSON(kind):
		v, err := expression.Decode(a.Body)
		if err != nil {
			return nil, fmt.Errorf("the answer's body: %w", err)
		}
		return v, nil
	case len(a.Body) > expression.SizeLimit:
		return nil, fmt.Errorf("the answer's body is larger than %d bytes", expression.SizeLimit)
	}
	return strings.ToValidUTF8(string(a.Body), "\uFFFD"), nil
}

// isJSON tells whether a media type is that of JSON, or of something that is written in it (RFC 6839).
func isJSON(kind string) bool {
	media, _, err := mime.ParseMediaType(kind)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
