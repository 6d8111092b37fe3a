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

// do sends a request and reads the answer.
func do(r *http.Request) ([]byte, *http.Response, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("the answer broke off: %w", err)
	}
	return answer, resp, nil
}
