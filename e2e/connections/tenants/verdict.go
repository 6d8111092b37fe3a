package tenants

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

// Counts are what was seen.
type Counts struct {
	// Handovers are sessions that programs have had. Of those Waited were there before. Failed are those that they
	// have not had: a server or the daemon was away.
	Handovers, Waited, Failed int
	// All that follow must be 0. CrossTenant are sessions that were opened for others: of another user or application
	// than asked for, with another tenant's mark, or there before the program has ever asked for one. Reused are those
	// that somebody has had before.
	CrossTenant, Reused int
	// Lost are sessions without TLS that have ended by themselves.
	Lost int
	// Over is how often more unused sessions were there than the budget allows.
	Over int
	// Leaks are descriptors that the daemon and the shims have more after many sessions than after few.
	Leaks int
	// Said are some words about these.
	Said []string
}

// verdict counts what programs say.
type verdict struct {
	mu   sync.Mutex
	c    Counts
	seen map[session]bool
}

func newVerdict() *verdict { return &verdict{seen: map[session]bool{}} }

// saidMost is how many words are kept.
const saidMost = 20

func (v *verdict) word(w report.Word) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case w.Failed != "":
		v.c.Failed++
		return
	case w.Lost != "":
		v.c.Lost++
		v.say(w.Tenant + " has lost its kept session: " + w.Lost)
		return
	}
	v.c.Handovers++
	if w.Waited {
		v.c.Waited++
	}
	if w.Whose != w.Asked || w.First && w.Waited || w.Marker != "" && w.Marker != w.Tenant {
		v.c.CrossTenant++
		v.say(fmt.Sprintf("%s has asked for a session of %s, and has one of %s, used by %q; first: %t, waited: %t",
			w.Tenant, w.Asked, w.Whose, w.Marker, w.First, w.Waited))
	}
	s := sessionOf(w)
	if v.seen[s] || w.Marker != "" {
		v.c.Reused++
		v.say(w.Tenant + " has a session that was used")
	}
	v.seen[s] = true
}

// say keeps some of the words; the caller holds mu.
func (v *verdict) say(words string) {
	if len(v.c.Said) < saidMost {
		v.c.Said = append(v.c.Said, words)
	}
}

func (v *verdict) over(words string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.c.Over++
	v.say(words)
}

func (v *verdict) counts() Counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.c
}

// hear takes the words of programs until the gate is closed and they have left, and says when one has had all its
// sessions. Such a program goes on when release is closed. all waits for the end.
func (v *verdict) hear(gate net.Listener, over chan<- struct{}, release <-chan struct{}) (all func() error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	wg.Go(func() {
		for {
			c, err := gate.Accept()
			if err != nil {
				return // it is closed
			}
			wg.Go(func() {
				defer c.Close() // it was only read from
				for words := json.NewDecoder(c); ; {
					var w report.Word
					if err := words.Decode(&w); errors.Is(err, io.EOF) {
						return
					} else if err != nil {
						mu.Lock()
						failed = append(failed, err)
						mu.Unlock()
						return
					}
					if !w.Over {
						v.word(w)
						continue
					}
					over <- struct{}{}
					wg.Go(func() {
						<-release
						_ = c.(*net.TCPConn).CloseWrite() // or it has left
					})
				}
			})
		}
	})
	return func() error {
		wg.Wait()
		return errors.Join(failed...)
	}
}
