//go:build !linux

package expression

import "time"

var start = time.Now()

// threadTime counts waiting, too, where nodes do not run.
func threadTime() time.Duration { return time.Since(start) }
