package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serverlessworkflow/sdk-go/v3/model"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// jq is what is between ${ and }, or all of a string that is an expression anyway.
func jq(s string) string {
	s = strings.TrimSpace(s)
	if model.IsStrictExpr(s) {
		s = strings.TrimSpace(s[len("${") : len(s)-len("}")])
	}
	return s
}

// valueOf is the jq of a value in which strings of the form ${ } are expressions.
func valueOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if s := strings.TrimSpace(v); model.IsStrictExpr(s) {
			return "(" + jq(s) + ")", nil
		}
		if strings.Contains(v, "${") {
			return "", fmt.Errorf(`the text %.100q has an expression in it; make all of it one: ${ "text \(.name) text" }`, v)
		}
	case map[string]any:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			member, err := valueOf(v[name])
			if err != nil {
				return "", err
			}
			members = append(members, text(name)+": "+member)
		}
		return "{" + strings.Join(members, ", ") + "}", nil
	case []any:
		var all []string
		for _, one := range v {
			s, err := valueOf(one)
			if err != nil {
				return "", err
			}
			all = append(all, s)
		}
		return "[" + strings.Join(all, ", ") + "]", nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return string(b), nil
}

// text is the jq of a string. A backslash is one in both languages.
func text(s string) string {
	b, _ := json.Marshal(s) // strings have no errors
	return string(b)
}

// call compiles the arguments of an HTTP call to one expression.
func (c *compiler) call(path string, a *model.HTTPArguments) *nodeapi.Call {
	parts := []string{`"method": ` + text(a.Method), `"url": ` + c.endpoint(path+"/endpoint", a.Endpoint)}
	if len(a.Headers) > 0 {
		headers := map[string]any{}
		for name, v := range a.Headers {
			headers[name] = v
		}
		parts = append(parts, `"headers": `+c.value(path+"/headers", headers))
	}
	if len(a.Query) > 0 {
		parts = append(parts, `"query": `+c.value(path+"/query", a.Query))
	}
	if len(a.Body) > 0 {
		var body any
		if err := json.Unmarshal(a.Body, &body); err != nil {
			c.fail(path+"/body", "%v", err)
		}
		parts = append(parts, `"body": `+c.value(path+"/body", body))
	}
	return &nodeapi.Call{Request: c.parsed(path, "{"+strings.Join(parts, ", ")+"}"), Output: a.Output, Redirect: a.Redirect,
		Host: hostOf(a.Endpoint)}
}

// endpoint compiles the URL of a call.
func (c *compiler) endpoint(path string, e *model.Endpoint) string {
	if e == nil {
		c.fail(path, "a URL is missing")
		return ""
	}
	template := e.URITemplate
	switch config := e.EndpointConfig; {
	case e.RuntimeExpression != nil:
		return "(" + jq(e.RuntimeExpression.Value) + ")"
	case config != nil && config.RuntimeExpression != nil:
		return "(" + jq(config.RuntimeExpression.Value) + ")"
	case config != nil:
		template = config.URI
	}
	if template == nil {
		c.fail(path, "a URL is missing")
		return ""
	}
	return checked[string](c, path)(templateOf(template.String()))
}

// hostOf is the host of an endpoint's URL, empty if that is computed.
func hostOf(e *model.Endpoint) string {
	if e == nil {
		return ""
	}
	template := e.URITemplate
	if e.EndpointConfig != nil {
		template = e.EndpointConfig.URI
	}
	if template == nil {
		return ""
	}
	_, rest, _ := strings.Cut(template.String(), "://")
	host, _, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(host, "{}?#@") {
		return ""
	}
	return host
}

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// templateOf is the jq of a URI template (RFC 6570, level 1), whose variables are members of the task's input.
func templateOf(s string) (string, error) {
	var parts []string
	literal := func(s string) {
		if s != "" {
			parts = append(parts, text(s))
		}
	}
	last := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(s, -1) {
		name := s[at[2]:at[3]]
		if !word.MatchString(name) {
			return "", fmt.Errorf("{%s} is not supported in a URL; use {name}, or an expression: ${ }", name)
		}
		literal(s[last:at[0]])
		parts = append(parts, "(."+name+` // "" | tostring | @uri)`)
		last = at[1]
	}
	literal(s[last:])
	if strings.ContainsAny(s[last:], "{}") {
		return "", errors.New("the URL has a brace that is not closed, or opened")
	}
	return "(" + strings.Join(parts, " + ") + ")", nil
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isVariable tells whether expressions can use a variable of that name, which they do not have anyway.
func isVariable(name string) bool {
	return word.MatchString(name) && !slices.Contains([]string{"context", "input", "output", "task", "workflow", "runtime", "ENV", "__loc__"}, name)
}

// iso8601 are the durations of ISO 8601 that have the same length whenever they begin.
var iso8601 = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// durationOf is a duration, at most a year.
func durationOf(d *model.Duration) (time.Duration, error) {
	const most = 365 * 24 * time.Hour
	var sum float64 // of seconds
	if in := d.AsInline(); in != nil {
		sum = 86400*float64(in.Days) + 3600*float64(in.Hours) + 60*float64(in.Minutes) + float64(in.Seconds) + float64(in.Milliseconds)/1000
	} else {
		m := iso8601.FindStringSubmatch(d.AsExpression())
		if m == nil || strings.HasSuffix(m[0], "P") || strings.HasSuffix(m[0], "T") {
			return 0, fmt.Errorf("%.100q is no duration; use, say, PT1M30S, or { seconds: 90 }", d.AsExpression())
		}
		for i, seconds := range []float64{86400, 3600, 60, 1} {
			if s := m[i+1]; s != "" {
				n, err := strconv.ParseFloat(s, 64)
				if err != nil {
					return 0, err
				}
				sum += n * seconds
			}
		}
	}
	if sum < 0 || sum > most.Seconds() {
		return 0, fmt.Errorf("a duration is from 0 to %s", most)
	}
	return time.Duration(sum * float64(time.Second)), nil
}
