package streams

import "time"

// Hasten has Keep look for a daemon at another pace. undo takes that back.
func Hasten(pace time.Duration) (undo func()) {
	before := retry
	retry = pace
	return func() { retry = before }
}
