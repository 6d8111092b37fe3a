package runtime

import (
	"context"
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
	stop       context.CancelFunc
	containers map[string]bool
}

// end has the daemon serve it no more.
func (e *endpoint) end() {
	e.stop()
	_ = e.listener.Close() // the kernel ends what waits there
}

// listen listens for what a container is described with, and returns the addresses by name. What the container has
// of its own is taken out of the description.
func (s *Service) listen(ctx context.Context, id string, of spec.Facts, d *nodeapi.DescribeResponse) (
	map[string]string, *lapse,
) {
	if err := of.CheckEndpoints(d.GetEndpoints()); err != nil {
		return nil, &lapse{descriptionInvalid, err}
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
	addresses := map[string]string{}
	for _, e := range d.GetEndpoints() {
		at, err := s.endpoint(ctx, id, of, e.GetName())
		if err != nil {
			return nil, &lapse{endpointFailed, err}
		}
		addresses[e.GetName()] = at
	}
	return addresses, nil
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

// endpoint returns the address of a sandbox's endpoint, which the containers of a pod share.
func (s *Service) endpoint(ctx context.Context, id string, of spec.Facts, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := of.SandboxID(id) + "/" + name
	e := s.served[key]
	if e == nil {
		l, err := s.listens(ctx, of.Network)
		if err != nil {
			return "", err
		}
		keeping, stop := context.WithCancel(context.Background())
		e = &endpoint{listener: l, stop: stop, containers: map[string]bool{}}
		s.served[key] = e
		offer := endpoints.Offer{Sandbox: of.SandboxID(id), Name: name}
		s.background.Go(func() { endpoints.Keep(keeping, endpoints.Path(s.node.Socket), offer, l) })
	}
	e.containers[id] = true
	return e.listener.Addr().String(), nil
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

// unlisten ends the endpoints of a container that is told of none.
func (s *Service) unlisten(container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveEndpoints(container)
}

// leaveEndpoints ends the endpoints whose last container is gone; the caller holds mu.
func (s *Service) leaveEndpoints(container string) {
	for key, e := range s.served {
		if !e.containers[container] {
			continue
		}
		delete(e.containers, container)
		if len(e.containers) == 0 {
			e.end()
			delete(s.served, key)
		}
	}
}
