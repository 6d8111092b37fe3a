//go:build integration

package smuggling

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// request is one as one of the parts has understood it.
type request struct {
	Method, Target, Host string
	Header, Trailer      map[string][]string // by names in lower case
	Body                 string
	Whole                bool // to the end of its body
}

func (r request) id() string { return strings.Join(r.Header[filterapi.HeaderRequest], ",") }

// framing are the headers that are a connection's own.
var framing = []string{"host", "connection", "content-length", "transfer-encoding", "trailer", "te", "keep-alive", "proxy-connection",
	"proxy-authenticate", "proxy-authorization", "upgrade", "expect", "traceparent", "tracestate"}

// same compares what matters to a function: all but how a connection carries it, and what is Headstart's own.
func same(sent, got request) string {
	own := func(r request) map[string][]string {
		left := map[string][]string{}
		dropped := framing
		for _, v := range sent.Header["connection"] {
			for name := range strings.SplitSeq(v, ",") {
				dropped = append(dropped, strings.ToLower(strings.TrimSpace(name)))
			}
		}
		for name, values := range r.Header {
			if !slices.Contains(dropped, name) && !strings.HasPrefix(name, filterapi.HeaderPrefix) {
				left[name] = values
			}
		}
		return left
	}
	if got.Whole && (!sent.Whole || got.Body != sent.Body) || !strings.HasPrefix(sent.Body, got.Body) {
		return fmt.Sprintf("of the body %q (whole: %t) it has %q (whole: %t)", sent.Body, sent.Whole, got.Body, got.Whole)
	}
	for name, v := range got.Trailer {
		if !slices.Equal(sent.Trailer[name], v) {
			return fmt.Sprintf("of the trailers %v it has %v", sent.Trailer, got.Trailer)
		}
	}
	if sent.Host != got.Host || sent.Method != got.Method || target(sent) != target(got) {
		return fmt.Sprintf("of %s %s%s it has %s %s%s", sent.Method, sent.Host, sent.Target, got.Method, got.Host, got.Target)
	}
	return cmp.Diff(own(sent), own(got))
}

// target is a request's in the form in which Go's client writes it. Python's server takes one slash for
// several at its start.
func target(r request) string {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return r.Target
	}
	t := u.RequestURI()
	if after, is := strings.CutPrefix(t, "//"); is {
		return "/" + strings.TrimLeft(after, "/")
	}
	return t
}

// understood is a request as Go's server has it, but for its body.
func understood(r *http.Request) request {
	return request{Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: lower(r.Header)}
}

func lower(h http.Header) map[string][]string {
	all := map[string][]string{}
	for name, values := range h {
		if values != nil { // else it is a trailer that is announced only
			all[strings.ToLower(name)] = slices.Clone(values)
		}
	}
	return all
}

var (
	token = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
	// value has no control character but a tab (RFC 9110, section 5.5).
	value     = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
	chunkSize = regexp.MustCompile(`^[0-9A-Fa-f]{1,15}$`)
	errForm   = errors.New("no two programs need understand it alike")
)

// strict reads the requests in what came by a connection, as RFC 9112 has them, and takes nothing that
// is merely tolerated. The last one may not be whole.
func strict(raw []byte) (all []request, err error) {
	for len(raw) > 0 {
		head, rest, ended := bytes.Cut(raw, []byte("\r\n\r\n"))
		if !ended {
			return all, nil
		}
		r, err := readHead(string(head))
		if err != nil {
			return all, fmt.Errorf("%q: %w", head, err)
		}
		all = append(all, r)
		if raw, err = all[len(all)-1].readBody(rest); err != nil {
			return all, fmt.Errorf("the body of %q: %w", head, err)
		}
	}
	return all, nil
}

func readHead(head string) (request, error) {
	lines := strings.Split(head, "\r\n")
	first := strings.Split(lines[0], " ")
	if len(first) != 3 || !token.MatchString(first[0]) || first[1] == "" || first[2] != "HTTP/1.1" {
		return request{}, errForm
	}
	r := request{Method: first[0], Target: first[1], Header: map[string][]string{}, Trailer: map[string][]string{}}
	for _, line := range lines[1:] {
		if err := add(r.Header, line); err != nil {
			return r, err
		}
	}
	h := r.Header
	if len(h["host"]) != 1 || len(h["content-length"]) > 1 || len(h["transfer-encoding"]) > 1 || len(h["content-length"])+len(h["transfer-encoding"]) > 1 {
		return r, errForm
	}
	r.Host = h["host"][0]
	return r, nil
}

func add(to map[string][]string, line string) error {
	name, v, is := strings.Cut(line, ":")
	v = strings.Trim(v, " \t")
	if !is || !token.MatchString(name) || !value.MatchString(v) {
		return errForm
	}
	to[strings.ToLower(name)] = append(to[strings.ToLower(name)], v)
	return nil
}

// readBody returns what follows it.
func (r *request) readBody(rest []byte) ([]byte, error) {
	if coding := r.Header["transfer-encoding"]; coding != nil {
		if !strings.EqualFold(coding[0], "chunked") {
			return nil, errForm
		}
		return r.readChunks(rest)
	}
	length := r.Header["content-length"]
	if length == nil {
		r.Whole = true
		return rest, nil
	}
	n, err := strconv.ParseUint(length[0], 10, 63)
	if err != nil {
		return nil, errForm
	}
	if r.Whole = uint64(len(rest)) >= n; !r.Whole {
		n = uint64(len(rest))
	}
	r.Body = string(rest[:n])
	return rest[n:], nil
}

func (r *request) readChunks(rest []byte) ([]byte, error) {
	for {
		line, after, ended := bytes.Cut(rest, []byte("\r\n"))
		if !ended {
			return nil, nil
		}
		if !chunkSize.Match(line) {
			return nil, errForm
		}
		n, _ := strconv.ParseUint(string(line), 16, 63) // as the expression says
		if n == 0 {
			return r.readTrailer(after)
		}
		if uint64(len(after)) < n+2 {
			r.Body += string(after[:min(n, uint64(len(after)))])
			return nil, nil
		}
		if string(after[n:n+2]) != "\r\n" {
			return nil, errForm
		}
		r.Body, rest = r.Body+string(after[:n]), after[n+2:]
	}
}

func (r *request) readTrailer(rest []byte) ([]byte, error) {
	for {
		line, after, ended := bytes.Cut(rest, []byte("\r\n"))
		if !ended {
			return nil, nil
		}
		rest = after
		if len(line) == 0 {
			r.Whole = true
			return rest, nil
		}
		if err := add(r.Trailer, string(line)); err != nil {
			return nil, err
		}
	}
}

// noted is a body that notes what is read of it.
type noted struct {
	io.ReadCloser
	note func(read []byte, whole bool)
}

func (b noted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.note(p[:n], err == io.EOF)
	return n, err
}
