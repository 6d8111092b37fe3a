package route

import "time"

// Hear says what endpoint i has in flight without an answer of it.
func (t *Table) Hear(i int, now time.Duration, load Load) { t.endpoints[i].hear(now, load) }

// Optimal is how often waits have to count at an endpoint, a share of whose requests goes
// elsewhere, so many times of service farther.
func Optimal(share, farther float64) float64 { return optimal(share, farther) }
