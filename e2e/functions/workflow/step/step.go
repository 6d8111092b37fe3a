// Package step is what the functions of a workflow say to each other and to who measures
// them. Times are by the clock of the one machine that all nodes of a test bed share.
package step

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Passing is a way of passing data from a function to the next.
type Passing string

// The ways that Truffle's evaluation compares (section VI.B).
const (
	Direct Passing = "direct" // in the request's body
	Redis  Passing = "redis"  // by a key of a key-value store
	S3     Passing = "s3"     // by an object's name
)

// Order tells a workflow's first function what to make and to whom to pass it.
type Order struct {
	Content string  `json:"content"` // of package content
	Size    int64   `json:"size"`    // bytes
	Seed    uint64  `json:"seed"`
	Passing Passing `json:"passing"`
	Bucket  string  `json:"bucket"`
	Key     string  `json:"key"`
	// Held has a body wait where it is until the next function is ready.
	Held bool `json:"held"`
	// To is the next function's host name, Path is of the request to it.
	To   string `json:"to"`
	Path string `json:"path"`
}

// Sent is a request from a function to the next.
type Sent struct {
	// Put is how long it took before to put the data into the store.
	Put time.Duration `json:"put"`
	// At is when the request was sent, Answered when its answer was there. Of a body that
	// was held it is when the function was called to become ready.
	At       time.Time `json:"at"`
	Answered time.Time `json:"answered"`
	// Request is the id that Headstart gave it, or the call.
	Request string `json:"request"`
	Status  int    `json:"status"`
	// Timing is the Server-Timing of the answer.
	Timing string          `json:"timing"`
	Answer json.RawMessage `json:"answer"`
}

// Received is what a function tells of its input.
type Received struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Done is when all work was done, and only the answer was left.
	Done time.Time `json:"done"`
	// Parts are what it passed on.
	Parts []Sent `json:"parts,omitempty"`
}

// SetTiming says how long it took to have the input and to work on it, and where the input
// came from (W3C Server Timing).
func SetTiming(h http.Header, input time.Duration, origin string, exec time.Duration) {
	h.Set("Server-Timing", fmt.Sprintf("input;dur=%.3f;desc=%q, exec;dur=%.3f", milliseconds(input), origin, milliseconds(exec)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
