// Package policy turns headstart.dev/ annotations into a typed policy.
package policy

import "time"

// Policy is what a function's owner asks of Headstart.
type Policy struct {
	// Input is the template of the input reference; empty: no stored input.
	Input string
	// Store is the operator's store that Input is read from.
	Store string
	// InputLimit is the largest input in bytes.
	InputLimit int64
	// ScaleToZero is how long a function stays idle before its instance is stopped.
	ScaleToZero time.Duration
	// ReadyTimeout bounds a cold start, from binding to readiness.
	ReadyTimeout time.Duration
}
