package runtime

import (
	"context"
	"net/netip"
	"syscall"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime/gate"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// closing is a sandbox whose network is closed, for one of its containers: its id, empty while it is not made again, and its name in the
// pod.
type closing struct {
	container, name, network string
	rules                    gate.Rules
}

// closeNetwork has nothing leave a container's sandbox but answers, if the daemon has described it so, and tells the daemon. A sandbox that is no pod's
// is closed when its program is about to start: its network is made while the container is.
func (s *Service) closeNetwork(ctx context.Context, id string, b *bundle, d *nodeapi.DescribeResponse) {
	if d.GetGate() == nil {
		s.openFor(id, b)
		return
	}
	c := closing{id, b.facts.Pod.GetContainer(), b.facts.Network, rulesOf(d.GetGate())}
	why := closeBundle(b, d.GetGate())
	if why == "" && b.facts.Pod == nil {
		s.gating.Lock()
		defer s.gating.Unlock()
		s.toClose[id] = c
		return
	}
	s.closeSandbox(ctx, b.facts.Pod, c, why)
}

// closeAtStart closes a sandbox that was not when its container was made.
func (s *Service) closeAtStart(ctx context.Context, id string) {
	s.gating.Lock()
	c, is := s.toClose[id]
	delete(s.toClose, id)
	s.gating.Unlock()
	if is {
		s.closeSandbox(ctx, nil, c, "")
	}
}

// closeSandbox closes a sandbox, unless there is a reason not to, and tells the daemon.
func (s *Service) closeSandbox(ctx context.Context, pod *nodeapi.Pod, c closing, why string) {
	if why == "" {
		sandbox := c.container
		if pod != nil {
			sandbox = pod.SandboxID()
		}
		if err := s.closeFor(sandbox, c); err != nil {
			why = err.Error()
		}
	}
	if err := s.node.closed(ctx, c.container, pod, why); err != nil {
		// Then it takes no request before its turn.
		log.G(ctx).WithError(err).WithField("sandbox", c.container).Warn("the daemon was not told that a sandbox is closed")
	}
}

// closeBundle has a container be made so that its sandbox can be closed, and says why that cannot be; empty: it can.
func closeBundle(b *bundle, g *nodeapi.Gate) (why string) {
	if onHostNetwork(b.facts.Network) {
		return spec.HostNetwork
	}
	config, why, err := spec.Closed(b.config, b.facts.Pod.GetUid(), sidecarUser(g))
	if why == "" && err == nil {
		if err = b.write(config); err == nil {
			b.config = config
		}
	}
	if err != nil {
		return err.Error()
	}
	return why
}

// sidecarUser is the user whose programs pass the gate, nil: none's do.
func sidecarUser(g *nodeapi.Gate) *uint32 {
	if !g.GetSidecar() {
		return nil
	}
	user := uint32(gate.SidecarUser)
	return &user
}

func rulesOf(g *nodeapi.Gate) gate.Rules {
	r := gate.Rules{Port: uint16(g.GetPort()), Sidecar: g.GetSidecar()}
	for _, c := range g.GetCallers() {
		if a, err := netip.ParseAddr(c); err == nil {
			r.Callers = append(r.Callers, a.Unmap())
		}
	}
	return r
}

func (s *Service) closeFor(sandbox string, c closing) error {
	s.gating.Lock()
	defer s.gating.Unlock()
	if err := s.closes(c.network, c.rules); err != nil {
		return err
	}
	s.closings[sandbox] = c
	return nil
}

// admit has a closed sandbox's program be asked from other addresses than before.
func (s *Service) admit(sandbox string, callers []netip.Addr) {
	s.gating.Lock()
	defer s.gating.Unlock()
	c, is := s.closings[sandbox]
	if !is {
		return
	}
	c.rules.Callers = callers
	if err := s.closes(c.network, c.rules); err != nil {
		log.L.WithError(err).WithField("sandbox", sandbox).Warn("the daemon cannot ask a program whose sandbox is closed")
		return
	}
	s.closings[sandbox] = c
}

// openFor takes the rules away that an earlier time of the container was closed by, if it is closed no more.
func (s *Service) openFor(id string, b *bundle) {
	sandbox := b.facts.SandboxID(id)
	s.gating.Lock()
	c, is := s.closings[sandbox]
	s.gating.Unlock()
	if is && c.name == b.facts.Pod.GetContainer() {
		s.open(sandbox)
	}
}

// open has a sandbox be as it was before it was closed.
func (s *Service) open(sandbox string) {
	s.gating.Lock()
	defer s.gating.Unlock()
	c, is := s.closings[sandbox]
	if !is {
		return
	}
	if err := s.opens(c.network); err != nil {
		log.L.WithError(err).WithField("sandbox", sandbox).Warn("a sandbox stays closed")
		return
	}
	delete(s.closings, sandbox)
}

// stop ends the program for which a sandbox is closed: the daemon cannot tell what that is at work on.
func (s *Service) stop(sandbox string) {
	s.gating.Lock()
	c, is := s.closings[sandbox]
	s.gating.Unlock()
	if !is || c.container == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	_, err := s.TTRPCTaskService.Kill(ctx, &taskAPI.KillRequest{ID: c.container, Signal: uint32(syscall.SIGKILL), All: true})
	if err != nil {
		log.L.WithError(err).WithField("sandbox", c.container).Warn("a program that is to be replaced was not killed")
	}
}

// leaveClosing notes that a container is no more. What its sandbox's network has of rules goes with that, or when the container is made
// again.
func (s *Service) leaveClosing(container string) {
	s.gating.Lock()
	defer s.gating.Unlock()
	delete(s.toClose, container)
	for sandbox, c := range s.closings {
		if c.container == container {
			c.container = ""
			s.closings[sandbox] = c
		}
	}
}
