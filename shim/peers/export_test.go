package peers

import (
	"net/http"
	"time"
)

// Patient waits for others however busy the test's machine is.
func (p *Peers) Patient() { p.Wait(time.Minute, time.Minute) }

// Hasty waits for nobody for long.
func (p *Peers) Hasty() { p.Wait(time.Second, time.Second) }

// Demanding waits for who answers, but not for long for what comes then.
func (p *Peers) Demanding() { p.Wait(time.Minute, 300*time.Millisecond) }

// Wait is for how long others are waited for.
func (p *Peers) Wait(late, patience time.Duration) {
	p.late, p.patience, p.alive = late, patience, time.Minute
	p.client = &http.Client{Transport: p.transport()}
}
