//go:build !wasip1

package filter

import "time"

var began = time.Now()

func clock() time.Duration { return time.Since(began) }
