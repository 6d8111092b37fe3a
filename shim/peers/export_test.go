package peers

import "time"

// Patient waits for others however busy the test's machine is.
func (p *Peers) Patient() { p.late, p.silence = time.Minute, time.Minute }

// Hasty waits for nobody for long.
func (p *Peers) Hasty() { p.late, p.silence = 300*time.Millisecond, 300*time.Millisecond }
