package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// pod is one with volumes.
type pod struct {
	set     *Set
	about   *nodeapi.Volumes
	refused error // why it gets none

	over    context.Context
	stop    context.CancelFunc
	volumes []*volume
}

// volume is one of a pod's.
type volume struct {
	reference.Volume

	mu  sync.Mutex
	try *try
}

// try is an attempt to bring a volume.
type try struct {
	began time.Time // zero: it was there before this daemon was
	done  chan struct{}
	// Valid once done is closed.
	ended time.Time
	path  string
	made  bool
	err   error
}

// newPod makes a pod known, with the versions that it had of an earlier daemon.
func (s *Set) newPod(m *nodeapi.Volumes) *pod {
	p := &pod{set: s, about: m}
	p.over, p.stop = context.WithCancel(context.Background())
	all, err := parse(m)
	p.refused = err
	held, err := s.versions.Held(p.directory())
	if err != nil {
		s.log.Warn("a pod may get other versions of its volumes than it had", "instance", m.GetId(), "error", err)
	}
	for _, one := range all {
		v := &volume{Volume: one}
		if path := held[one.Name]; path != "" {
			v.try = &try{done: make(chan struct{}), path: path}
			close(v.try.done)
		}
		p.volumes = append(p.volumes, v)
	}
	return p
}

func (p *pod) directory() string { return nodeapi.SandboxDirectory(p.about.GetId()) }

func (p *pod) end() { p.stop() }

// bring begins to bring a volume, unless it is there or being brought. One that could not be had is tried again: it is
// another container that asks.
func (p *pod) bring(v *volume) *try {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.try != nil && (!v.try.over() || v.try.err == nil) {
		return v.try
	}
	t := &try{began: time.Now(), done: make(chan struct{})}
	v.try = t
	namespace, _, _ := strings.Cut(p.about.GetName(), "/")
	of := tree.Prefix{Namespace: namespace, Store: p.about.GetStore(), Prefix: v.Prefix}
	p.set.wg.Go(func() {
		defer close(t.done)
		t.path, t.made, t.err = p.set.versions.Version(p.over, of, p.directory(), v.Name)
		t.ended = time.Now()
		log := p.set.log.With("pod", p.about.GetName(), "volume", v.Name, "prefix", v.Prefix.String(),
			"took", t.took())
		switch {
		case t.err == nil:
			p.set.metrics.brought(of.Store, t)
			log.Info("a volume is there", "way", t.way())
		case p.over.Err() == nil:
			p.set.metrics.brought(of.Store, t)
			log.Warn("a volume cannot be had", "reason", problem.Of(t.err).Title, "error", t.err)
		}
	})
	return t
}

// mounts returns where the volumes are once they all are there, or when the pod's wait is over.
func (p *pod) mounts(ctx context.Context) (mounts []*nodeapi.Mount, err error) {
	if p.refused != nil {
		return nil, p.refused
	}
	began, missing := time.Now(), error(nil)
	defer func() {
		if p.over.Err() == nil && ctx.Err() == nil { // else nobody waits
			p.set.metrics.waited(began, missing)
		}
	}()
	wait := p.about.GetWait().AsDuration()
	late := time.NewTimer(wait)
	defer late.Stop()
	isLate := false
	for _, v := range p.volumes {
		t := p.bring(v)
		if !isLate {
			select {
			case <-t.done:
			case <-late.C:
				isLate = true
			case <-p.over.Done():
				return nil, problem.InstanceGone()
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		path, err := t.now(v, wait)
		t.tell(ctx, v, err)
		missing = cmp.Or(missing, err)
		switch {
		case err == nil:
			mounts = append(mounts, &nodeapi.Mount{Source: path, Destination: root + v.Name, ReadOnly: true})
		case p.over.Err() != nil:
			return nil, problem.InstanceGone()
		case !p.about.GetStartLate():
			return nil, err
		}
	}
	return mounts, nil
}

// now is what has become of a try.
func (t *try) now(v *volume, wait time.Duration) (path string, err error) {
	if !t.over() {
		return "", problem.New(http.StatusGatewayTimeout, "VolumeLate", filterapi.AnnotationVolumesWait, fmt.Sprintf(
			"volume %s is not there after %s, which %s allows; the node goes on fetching %s",
			v.Name, wait, filterapi.AnnotationVolumesWait, v.Prefix))
	}
	return t.path, ofVolume(t.err)
}

func (t *try) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// ofVolume has a problem with an object name the volumes' annotation. Whatever reads objects knows no volumes.
func ofVolume(err error) error {
	p, is := errors.AsType[*problem.Problem](err)
	if !is || p.Field != filterapi.AnnotationInput {
		return err
	}
	named := *p
	named.Field = filterapi.AnnotationVolumes
	return fmt.Errorf("%w: %w", &named, err)
}
