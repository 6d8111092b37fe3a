// Package host is what the filters ask of the proxy for each request, by proxy-wasm's ABI 0.2.0. The SDK for Go has
// all of this, and allocates for each question: there are some ten for a request (docs/rationale.md).
package host

import "errors"

// ErrChanged is that another worker has been faster to tell something.
var ErrChanged = errors.New("what is shared has changed")
