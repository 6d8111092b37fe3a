// Package volume brings sandboxes their volumes: it has them made when the node hears of a pod, and says where they
// are when the pod's containers are made.
package volume

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// root is where a sandbox sees its volumes. The shim has none elsewhere.
	root = "/headstart/volumes/"
	// announceTimeout is how long a sandbox may be ahead of the news of its volumes, as of a job.
	announceTimeout = 15 * time.Second
)

var errUnknown = problem.New(http.StatusServiceUnavailable, "VolumesUnknown", "",
	"the control plane has not told this node of the pod's volumes; "+
		"`headstart status` shows whether it runs and has this node")

// Versions have the volumes' versions on the node's disk.
type Versions interface {
	// Version returns where the present version of a prefix is, once it is whole, which a pod then has, and whether
	// it was not there already.
	Version(ctx context.Context, of tree.Prefix, pod, volume string) (path string, made bool, err error)
	// Held are those that a pod has, by the volumes' names.
	Held(pod string) (map[string]string, error)
	// Release takes them from the pod, and Sweep from all that are not to be kept.
	Release(pod string) error
	Sweep(keep func(pod string) bool) error
}

// Set has the pods that the node knows and that have volumes. Its methods may be called at the same time.
type Set struct {
	versions Versions
	metrics  *metrics
	log      *slog.Logger

	wg   sync.WaitGroup
	mu   sync.Mutex
	pods map[string]*pod // nil: closed
	// announced is told of each pod.
	announced sandboxes.News
}

// New returns a set without pods. The caller has to Close it.
func New(v Versions, r prometheus.Registerer, log *slog.Logger) *Set {
	return &Set{versions: v, metrics: newMetrics(r), log: log, pods: map[string]*pod{}}
}

// Begin implements sandboxes.Volumes. A pod that is known stays as it is, unless it was refused.
func (s *Set) Begin(m *nodeapi.Volumes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.pods[m.GetId()]; s.pods == nil || old != nil && old.refused == nil {
		return
	}
	p := s.newPod(m)
	s.pods[m.GetId()] = p
	for _, v := range p.volumes {
		p.bring(v)
	}
	s.announced.Tell()
}

// Bring implements sandboxes.Provider. Whether the sandbox has volumes its shim knows, which asks for them then.
func (s *Set) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	return sandboxes.Need{Wait: sandboxes.WaitFail, Volumes: func(ctx context.Context) ([]*nodeapi.Mount, error) {
		p, err := s.find(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		return p.mounts(ctx)
	}}, nil
}

func (s *Set) find(ctx context.Context, id string) (*pod, error) {
	return sandboxes.Announced(ctx, announceTimeout, errUnknown, func() (*pod, <-chan struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.pods[id]; p != nil {
			return p, nil, nil
		}
		return nil, s.announced.Next(), nil
	})
}

// Release implements sandboxes.Provider: the pod's versions stay for others.
func (s *Set) Release(id string) {
	s.mu.Lock()
	p := s.pods[id]
	delete(s.pods, id)
	s.mu.Unlock()
	if p != nil {
		p.end()
	}
	if err := s.versions.Release(nodeapi.SandboxDirectory(id)); err != nil {
		s.log.Error("the volumes of a pod are not let go of", "instance", id, "error", err)
	}
}

// Sweep implements sandboxes.Volumes.
func (s *Set) Sweep(keep func(directory string) bool) {
	if err := s.versions.Sweep(keep); err != nil {
		s.log.Error("the volumes of pods that are gone are not let go of", "error", err)
	}
}

// Close ends what is being fetched. Pods keep their volumes.
func (s *Set) Close() {
	s.mu.Lock()
	pods := s.pods
	s.pods = nil
	s.mu.Unlock()
	for _, p := range pods {
		p.end()
	}
	s.wg.Wait()
}

// parse reads the volumes of a message. What is wrong with them is of a kind that only a newer daemon knows.
func parse(m *nodeapi.Volumes) ([]reference.Volume, error) {
	if r := m.GetRefused(); r != nil {
		return nil, problem.New(int(r.GetStatus()), problem.Reason(r.GetReason()), r.GetField(), r.GetMessage())
	}
	volumes, err := reference.ParseVolumes(m.List())
	if err != nil {
		return nil, source.Because(problem.New(http.StatusBadGateway, "VolumesUnknown", "",
			"the node's daemon does not know this kind of volume; it is older than the control plane"), err)
	}
	return volumes, nil
}
