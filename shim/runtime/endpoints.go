package runtime

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"

	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// endpoint is a listener on the loopback of a sandbox, for as long as that has containers that were told of it.
type endpoint struct {
	listener   *net.TCPListener
	output     *output // nil: it has none
	stop       context.CancelFunc
	containers map[string]bool
}

// end has the daemon serve it no more.
func (e *endpoint) end() {
	e.stop()
	_ = e.listener.Close() // the kernel ends what waits there
	if e.output == nil {
		return
	}
	if err := e.output.remove(); err != nil {
		log.L.WithError(err).Warn("the directory of a sandbox's outputs stays in the bundle")
	}
}

// served is what a container has by its endpoints.
type served struct {
	// addresses are host and port, by the endpoints' names.
	addresses map[string]string
	// output is the path of the directory for its outputs, empty for none.
	output string
}

// listen listens for what a container is described with. What the container has of its own is taken out of the
// description.
func (s *Service) listen(ctx context.Context, id string, b *bundle, d *nodeapi.DescribeResponse) (has served, _ *lapse) {
	of := b.facts
	if err := of.CheckEndpoints(d.GetEndpoints()); err != nil {
		return has, &lapse{descriptionInvalid, err}
	}
	shared := onHostNetwork(of.Network)
	d.Endpoints = slices.DeleteFunc(d.Endpoints, func(e *nodeapi.Endpoint) bool {
		why := of.Left[e.GetName()]
		if why == "" && shared {
			why = spec.HostNetwork
		}
		if why != "" {
			s.tellLeft(endpoints.Offer{Sandbox: of.SandboxID(id), Name: e.GetName(), Left: why})
		}
		return why != ""
	})
	has.addresses = map[string]string{}
	home := s.settle(b)
	for _, described := range d.GetEndpoints() {
		e, err := s.endpoint(ctx, id, of, home, described)
		if err != nil {
			return has, &lapse{endpointFailed, err}
		}
		has.addresses[described.GetName()] = e.listener.Addr().String()
		if e.output != nil && e.output.fits(of.Memory) {
			has.output = e.output.at
		}
	}
	return has, nil
}

// onHostNetwork tells whether a network namespace is the shim's own, which is the node's: containerd gives containers of
// pods with hostNetwork a path, too, that of the pod's first process. A path that leads nowhere cannot be listened in
// either.
func onHostNetwork(path string) bool {
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return true // then nobody knows
	}
	its, err := os.Stat(path)
	return err == nil && os.SameFile(own, its)
}

// endpoint returns a sandbox's endpoint, which the containers of a pod share.
func (s *Service) endpoint(ctx context.Context, id string, of spec.Facts, home string, d *nodeapi.Endpoint) (*endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := of.SandboxID(id) + "/" + d.GetName()
	e := s.served[key]
	if e == nil {
		l, err := s.listens(ctx, of.Network)
		if err != nil {
			return nil, err
		}
		offer := endpoints.Offer{Sandbox: of.SandboxID(id), Name: d.GetName()}
		var out *output
		if d.GetOutput() {
			s.ending.Lock() // that of a container before may be at the same path
			defer s.ending.Unlock()
			if out, err = newOutput(s.node.Binds, home, of.Memory); err != nil {
				return nil, errors.Join(err, l.Close())
			}
			offer.Output = out.dir
		}
		keeping, stop := context.WithCancel(context.Background())
		e = &endpoint{listener: l, output: out, stop: stop, containers: map[string]bool{}}
		s.served[key] = e
		s.background.Go(func() { endpoints.Keep(keeping, endpoints.Path(s.node.Socket), offer, l) })
	}
	e.containers[id] = true
	return e, nil
}

// tellLeft tells the daemon while the caller goes on.
func (s *Service) tellLeft(o endpoints.Offer) {
	s.background.Go(func() {
		if err := endpoints.Tell(context.Background(), endpoints.Path(s.node.Socket), o); err != nil {
			log.L.WithError(err).WithField("sandbox", o.Sandbox).
				Debug("the daemon was not told that a container is left alone")
		}
	})
}

// unlisten ends the endpoints of a container that is told of none, and its part in a conversation.
func (s *Service) unlisten(container string) {
	s.mu.Lock()
	ended := s.leaveEndpoints(container)
	s.leaveConversation(container)
	s.mu.Unlock()
	ended()
}

// leaveEndpoints forgets the endpoints whose last container is gone; the caller holds mu. end ends them, which can take a
// while: the kernel frees what is in memory.
func (s *Service) leaveEndpoints(container string) (end func()) {
	var all []*endpoint
	for key, e := range s.served {
		if !e.containers[container] {
			continue
		}
		delete(e.containers, container)
		if len(e.containers) == 0 {
			all = append(all, e)
			delete(s.served, key)
		}
	}
	if len(all) == 0 {
		return func() {}
	}
	s.ending.Lock()
	return func() {
		defer s.ending.Unlock()
		for _, e := range all {
			e.end()
		}
	}
}
