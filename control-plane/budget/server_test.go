package budget

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

// inbox has what nodes are told.
type inbox chan *nodeapi.Allowances

func (b inbox) SendTo(_, _ string, m *nodeapi.ControlMessage) error {
	b <- m.GetAllowances()
	return nil
}

func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, held := make(inbox, 10), true
		var mu sync.Mutex
		s := NewServer(destinations.Destinations{{Name: "orders", Origin: destinations.Node, Unused: 5}, {Name: "own", Origin: destinations.Sandbox}},
			told, func() bool { mu.Lock(); defer mu.Unlock(); return held })
		report := func(id int64, newest bool) {
			s.Unused("edge", "p", newest, &nodeapi.Unused{Id: id, Destinations: []*nodeapi.UnusedConnections{
				{Destination: "orders", Wanted: 9}, {Destination: "own", Wanted: 9}, nil}})
		}
		report(1, true) // nobody is in charge
		s.Begin()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		time.Sleep(expiry + margin)
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("told %v", <-told)
		}
		report(2, true)
		if m := <-told; m.GetAnswers() != 2 || m.GetKeep() || len(m.GetDestinations()) != 1 || m.GetDestinations()[0].GetUnused() != 5 {
			t.Errorf("told %v", m)
		}
		report(3, false)
		if m := <-told; m.GetAnswers() != 3 || len(m.GetDestinations()) != 0 {
			t.Errorf("an older daemon is told %v", m)
		}
		s.Went("edge", "p")
		mu.Lock()
		held = false
		mu.Unlock()
		report(4, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("not in charge, and told %v", <-told)
		}
		cancel()
		running.Wait()
	})
}
