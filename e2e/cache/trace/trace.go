// Package trace has sequences of requests for objects: synthetic ones, and published ones from files. Replay says how
// many of a sequence's requests a cache would have answered.
package trace

// Request is one for an object.
type Request struct {
	// Object is the object's number: each content has another one, so a changed object is a new one.
	Object int
	Size   int64 // bytes
}

// Trace is a sequence of requests.
type Trace struct {
	Requests []Request
	// Footprint is the size in bytes of all objects, each counted once. A synthetic trace leaves out those of its
	// scans.
	Footprint int64
}
