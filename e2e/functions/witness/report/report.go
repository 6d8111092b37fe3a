// Package report is what the witness function answers.
package report

import (
	"net/http"
	"strings"
)

// Report is what the function saw.
type Report struct {
	Method string      `json:"method"`
	Proto  string      `json:"proto"`
	Path   string      `json:"path"`
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   Content     `json:"body"`
	// File is what x-headstart-input-file names.
	File Content `json:"file"`
	// Inputs are the request's named inputs, as files.
	Inputs map[string]Content `json:"inputs,omitempty"`
	// Dir lists the sandbox's inputs.
	Dir      []string `json:"dir"`
	DirError string   `json:"dir_error,omitempty"`
	// Env are the HEADSTART_ variables.
	Env []string `json:"env"`
	UID int      `json:"uid"`
}

// Instance is the id of the instance that answered.
func (r Report) Instance() string {
	for _, e := range r.Env {
		if id, ok := strings.CutPrefix(e, "HEADSTART_INSTANCE="); ok {
			return id
		}
	}
	return ""
}

// Content is a body or a file.
type Content struct {
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Error    string `json:"error,omitempty"`
	Writable bool   `json:"writable,omitempty"`
}
