package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// setBody gives a request its body.
func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// answer is one that was read to its end.
type answer struct {
	code   int
	status string
	header http.Header
	body   []byte
}

// do sends a request and reads the answer.
func do(r *http.Request) (a answer, err error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a = answer{code: resp.StatusCode, status: resp.Status, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return a, fmt.Errorf("the answer broke off: %w", err)
	}
	return a, nil
}
