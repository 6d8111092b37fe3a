package workflow

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// readAll reads a request's body, as much as a value may have.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, expression.SizeLimit))
	if err != nil {
		return nil, fmt.Errorf("reading the request's body: %w", err)
	}
	return b, nil
}

// newRequest makes a request of a step's.
func newRequest(ctx context.Context, s *program.Request) (*http.Request, error) {
	out, err := http.NewRequestWithContext(ctx, s.Method, s.URL.String(), bytes.NewReader(s.Body))
	if err != nil {
		return nil, fmt.Errorf("making the request of a step: %w", err)
	}
	out.Header = s.Header.Clone()
	return out, nil
}

// pathOf is a URL as a server sees it: what a function is asked by has no host of its own.
func pathOf(u *url.URL) *url.URL {
	path := &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if path.Path == "" {
		path.Path = "/"
	}
	return path
}
