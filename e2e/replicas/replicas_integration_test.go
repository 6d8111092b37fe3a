//go:build integration

package replicas

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { client.CloseIdleConnections() }))
}

// Of several control planes one is in charge, and another one when that has ended, or has died.
func TestOneControlPlaneIsInCharge(t *testing.T) {
	b := newControlPlanes(t)
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		leader, other := b.roles()
		leader.end(how)
		b.eventually(other.name+" in charge", func() error {
			if s, err := b.status(other); err != nil || !s.InCharge {
				return fmt.Errorf("%+v, %w", s, err)
			}
			return nil
		})
		b.startControlPlane(leader)
	}
	b.connected(2)
}

// While a cluster is updated, control planes of one version work with daemons of another, whichever
// are updated first: hot and cold requests are answered, and idle instances end.
func TestNeighbouringVersionsWorkTogether(t *testing.T) {
	if os.Getenv(neighbour) == "none" {
		t.Skip("the clone has no commit of the neighbouring version, as neighbour.sh has said")
	}
	for _, older := range []string{"headstart-controlplane", "headstart-node"} {
		t.Run("an older "+older, func(t *testing.T) {
			b := newBed(t, older)
			b.connected(2)
			l := b.load()
			time.Sleep(2 * idleWindow)
			b.end(l)
			b.eventually("the instances of idle functions have ended", func() error {
				s, err := b.status(b.controlPlanes[0])
				if err != nil {
					return err
				}
				for _, n := range s.Nodes {
					if len(n.Problems) > 0 {
						return fmt.Errorf("%s: %+v", n.Name, n.Problems)
					}
				}
				for _, f := range s.Functions {
					if len(f.Instances) > 0 {
						return fmt.Errorf("%s has %d instances", f.Name, len(f.Instances))
					}
				}
				return nil
			})
		})
	}
}

const (
	// aWhile is how long a fault lasts, and how long the load goes on after it.
	aWhile = 4 * time.Second
	// hangs is how long a control plane does: longer than a request may wait, and until the Lease
	// has another holder.
	hangs = 20 * time.Second
	// noticed is longer than a cold request takes of a control plane that hangs, 4 s and its
	// instance's start, and less than the 10 s after which its connection is looked at.
	noticed = 9 * time.Second
)

// Whatever becomes of control planes, of daemons that are updated and of the ways between them: no
// request fails for it, neither hot nor cold ones.
func TestNoRequestFails(t *testing.T) {
	b := newBed(t)
	for _, fault := range []struct {
		name string
		do   func(b *bed)
		// cold is what the longest cold request takes at most; 0: no more than it may.
		cold time.Duration
	}{
		{"nothing happens", func(*bed) { time.Sleep(2 * idleWindow) }, 0},
		{"the control plane in charge is killed", (*bed).leaderIsKilled, 0},
		{"the other control plane is killed", (*bed).followerIsKilled, 0},
		{"the control plane in charge is updated", (*bed).leaderIsUpdated, 0},
		{"the control plane in charge hangs", (*bed).leaderHangs, noticed},
		{"the way to the control plane in charge is cut", (*bed).leaderIsCutOff, noticed},
		{"a node is cut off from all control planes", (*bed).bothHang, 0},
		{"all control planes are away", (*bed).bothAreKilled, 0},
		{"daemons are updated", (*bed).daemonsAreUpdated, 0},
		{"daemons are updated while a control plane is away", (*bed).daemonsAreUpdatedWithoutLeader, 0},
	} {
		t.Run(fault.name, func(t *testing.T) {
			inner := *b
			inner.t = t
			inner.connected(2)
			l := inner.load()
			time.Sleep(aWhile / 2)
			fault.do(&inner)
			time.Sleep(aWhile)
			inner.end(l)
			if fault.cold > 0 && l.coldMost > fault.cold {
				t.Errorf("a cold request took %v", l.coldMost)
			}
			inner.connected(2)
		})
	}
	if n := b.kubelet.zeroesOf(hot); n > 0 {
		t.Errorf("the function that was busy all the time was scaled to zero %d times", n)
	}
	if n := b.asked.Load(); n >= coldOnes {
		t.Errorf("%d functions were too few for as many cold requests: %d", coldOnes, n)
	}
}

func (b *bed) leaderIsKilled() {
	leader, other := b.roles()
	leader.end(syscall.SIGKILL)
	time.Sleep(aWhile)
	// Its lease runs out, and the other one takes over.
	b.connected(1)
	if s, err := b.status(other); err != nil || !s.InCharge {
		b.t.Errorf("%+v, %v", s, err)
	}
	b.startControlPlane(leader)
	b.connected(2)
}

func (b *bed) followerIsKilled() {
	_, other := b.roles()
	other.end(syscall.SIGKILL)
	time.Sleep(aWhile)
	b.startControlPlane(other)
	b.connected(2)
}

// leaderIsUpdated: in good order, as Kubernetes ends a pod.
func (b *bed) leaderIsUpdated() {
	leader, other := b.roles()
	leader.end(syscall.SIGTERM)
	b.connected(1)
	if s, err := b.status(other); err != nil || !s.InCharge {
		b.t.Errorf("%+v, %v", s, err)
	}
	b.startControlPlane(leader)
	b.connected(2)
}

// leaderHangs: nobody hears of it, nor that it is no more, and at the end it goes on where it was.
func (b *bed) leaderHangs() {
	leader, _ := b.roles()
	b.signal(leader.program, syscall.SIGSTOP)
	defer b.signal(leader.program, syscall.SIGCONT)
	time.Sleep(hangs)
}

// leaderIsCutOff: nothing of what daemons say gets there, and nothing back.
func (b *bed) leaderIsCutOff() {
	leader, _ := b.roles()
	defer leader.link.stall()()
	time.Sleep(hangs)
}

func (b *bed) bothHang() {
	defer b.service.stall()()
	for _, p := range b.controlPlanes {
		defer p.link.stall()()
	}
	time.Sleep(2 * aWhile)
}

// bothAreKilled: cold requests wait for one to be back. Gateways that start meanwhile have what
// the daemon knows, and so have those of a daemon that starts.
func (b *bed) bothAreKilled() {
	for _, p := range b.controlPlanes {
		p.end(syscall.SIGKILL)
	}
	time.Sleep(aWhile)
	for _, p := range b.controlPlanes {
		b.startControlPlane(p)
	}
	b.connected(2)
}

func (b *bed) daemonsAreUpdated() {
	for _, n := range b.nodes {
		b.update(n)
	}
}

func (b *bed) daemonsAreUpdatedWithoutLeader() {
	leader, _ := b.roles()
	leader.end(syscall.SIGKILL)
	for _, n := range b.nodes {
		b.update(n)
	}
	b.startControlPlane(leader)
	b.connected(2)
}

// update replaces a node's daemon, as Kubernetes does: the next one is ready before the first is
// told to end.
func (b *bed) update(n *node) {
	b.t.Helper()
	before := n.daemon
	b.startDaemon(n)
	before.end(syscall.SIGTERM)
}

// A gateway that starts while all control planes are away has the endpoints from its daemon's
// disk, also if the daemon has only just started.
func TestAFreshGatewayWithoutControlPlanes(t *testing.T) {
	b := newBed(t)
	b.eventually("the endpoints on the nodes' disks", b.kept)
	for _, p := range b.controlPlanes {
		p.end(syscall.SIGKILL)
	}
	for _, n := range b.nodes {
		n.gateway.end(syscall.SIGKILL)
		n.daemon.end(syscall.SIGKILL)
		b.startDaemon(n)
		b.startGateway(n)
	}
	for i := range 50 {
		if _, err := ask(t.Context(), b.nodes[i%len(b.nodes)], hot); err != nil {
			t.Fatal(err)
		}
	}
}

// kept says whether the daemons have both of the hot function's pods on disk.
func (b *bed) kept() error {
	for _, n := range b.nodes {
		text, err := os.ReadFile(filepath.Join(n.dir+"-state", "endpoints.pb"))
		if err != nil {
			return err
		}
		if pods := bytes.Count(text, []byte("127.20.0.")); pods < hotPods {
			return fmt.Errorf("%s has %d pods", n.name, pods)
		}
	}
	return nil
}
