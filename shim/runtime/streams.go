package runtime

import (
	"context"
	"errors"
	"net/netip"
	goruntime "runtime"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/runtime/notify"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// conversation is a sandbox's with the daemon about streams, for as long as it has containers that were told of it.
type conversation struct {
	shim       *streams.Shim
	stop       context.CancelFunc
	containers map[string]bool
}

// converse has the daemon dial in the network of a container that is described with streams, and join streams there;
// nil for another container.
func (s *Service) converse(id string, b *bundle, d *nodeapi.DescribeResponse) *streams.Shim {
	if !d.GetStreams() {
		return nil
	}
	dial, listen := streams.HostNetwork, streams.Listen(nil)
	if b.hasNetwork() {
		dial, listen = s.dials(b.facts.Network), streams.ListenIn(b.facts.Network)
	}
	sandbox := b.facts.SandboxID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[sandbox]
	if c == nil {
		keeping, stop := context.WithCancel(context.Background())
		c = &conversation{shim: streams.NewShim(sandbox, dial, listen), stop: stop, containers: map[string]bool{}}
		c.shim.Callers = func(callers []netip.Addr) { s.admit(sandbox, callers) }
		c.shim.Stop, c.shim.Open = func() { s.stop(sandbox) }, func() { s.open(sandbox) }
		s.conversations[sandbox] = c
		s.background.Go(func() { c.shim.Keep(keeping, streams.Path(s.node.Socket)) })
	}
	c.containers[id] = true
	return c.shim
}

// hasNetwork tells whether the container has a network namespace of its own that the shim can enter.
func (b *bundle) hasNetwork() bool { return b.facts.Network != "" && !onHostNetwork(b.facts.Network) }

// leaveConversation ends the conversation whose last container is gone, in the background; the caller holds mu.
func (s *Service) leaveConversation(container string) {
	for sandbox, c := range s.conversations {
		delete(c.containers, container)
		if len(c.containers) == 0 {
			delete(s.conversations, sandbox)
			c.stop()
		}
	}
}

// notify has the daemon asked about the connections of a container that is described so. The container goes without
// if that cannot be, and the daemon hears why.
func (s *Service) notify(ctx context.Context, id string, b *bundle, d *nodeapi.DescribeResponse,
	shim *streams.Shim,
) *lapse {
	if !d.GetConnect() || shim == nil {
		return nil
	}
	err := notify.Available()
	if err == nil && !b.hasNetwork() {
		err = errors.New("the sandbox has no network namespace of its own")
	}
	var l *notify.Listener
	if err == nil {
		l, err = notify.Listen(b.path, shim)
	}
	if err == nil {
		s.mu.Lock()
		s.listeners[id] = l
		s.mu.Unlock()
		err = b.notify(l.Path())
	}
	if err == nil {
		return nil
	}
	return s.unavailable(ctx, id, shim, err)
}

func (s *Service) unavailable(ctx context.Context, id string, shim *streams.Shim, why error) *lapse {
	s.unnotify(id)
	log.G(ctx).WithError(why).WithField("sandbox", id).WithField("reason", connectUnavailable).
		Warn("a program connects without the daemon")
	shim.Lapse(connectUnavailable, why.Error())
	return &lapse{connectUnavailable, why}
}

// notify has connect(2) wait for the answers of a listener, until revert.
func (b *bundle) notify(listener string) error {
	without := b.config
	config, err := spec.Notify(without, listener, goruntime.GOARCH)
	if err != nil {
		return err
	}
	if err := b.write(config); err != nil {
		return err
	}
	b.without = without
	return nil
}

// createWithout has a container created that runc, or the kernel, did not create with a listener.
func (s *Service) createWithout(ctx context.Context, r *taskAPI.CreateTaskRequest, b *bundle, failed error) (
	*taskAPI.CreateTaskResponse, *lapse, error,
) {
	s.mu.Lock()
	c := s.conversations[b.facts.SandboxID(r.ID)]
	s.mu.Unlock()
	if b.without == nil || c == nil || ctx.Err() != nil {
		return nil, nil, failed
	}
	if err := b.write(b.without); err != nil {
		return nil, nil, errors.Join(failed, err)
	}
	res, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil {
		return nil, nil, err // it is for another reason
	}
	return res, s.unavailable(ctx, r.ID, c.shim, failed), nil
}

// unnotify ends a container's listener.
func (s *Service) unnotify(id string) {
	s.mu.Lock()
	l := s.listeners[id]
	delete(s.listeners, id)
	s.mu.Unlock()
	if l != nil {
		l.Close()
	}
}
