package testbed

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// SetBody gives a request its body.
func SetBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// Answer is one that was read to its end.
type Answer struct {
	Code   int
	Status string
	Header http.Header
	Body   []byte
}

// Do sends a request and reads the answer.
func Do(r *http.Request) (a Answer, err error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a = Answer{Code: resp.StatusCode, Status: resp.Status, Header: resp.Header}
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return a, fmt.Errorf("the answer broke off: %w", err)
	}
	return a, nil
}
