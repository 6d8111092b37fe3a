// Package lease says which of several control planes does what only one may do at a time.
// Everything else all of them do alike, from what the cluster tells each.
package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Name is that of the Lease object. The chart makes it; where it does not, a control plane does.
const Name = "headstart-controlplane"

// These are what Kubernetes' own controllers have. Nobody waits for what the lease is for:
// to scale to zero a little later, or to write a new function's EnvoyFilter.
const (
	// duration is how long a holder that went without a word keeps others waiting.
	duration = 15 * time.Second
	// renewDeadline is how long a holder that cannot renew goes on; less than duration, so
	// that it has ended when the next one begins.
	renewDeadline = 10 * time.Second
	// retryPeriod is between two tries, to get it as to keep it.
	retryPeriod = 2 * time.Second
	// makeAfter is how long the Lease may be missing until it is made here. An installation of the chart that is under way
	// makes it itself, and fails if it is there already.
	makeAfter = 30 * time.Second
)

// Lease is one control plane's view of the Lease object.
type Lease struct {
	client    kubernetes.Interface
	namespace string
	identity  string
	log       *slog.Logger
	held      atomic.Bool
}

// New returns a lease that is not held. identity tells this control plane from all others.
func New(client kubernetes.Interface, namespace, identity string, log *slog.Logger) *Lease {
	return &Lease{client: client, namespace: namespace, identity: identity, log: log}
}

// Held says whether it is this control plane's turn.
func (l *Lease) Held() bool { return l.held.Load() }

// Run tries to hold the lease until ctx ends, and calls work each time that it does: with a
// context that ends when it is not held any more. It gives the lease back when work has
// returned, so that the next control plane need not wait for it to expire.
func (l *Lease) Run(ctx context.Context, work func(context.Context)) error {
	l.await(ctx)
	for ctx.Err() == nil {
		if err := l.term(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the Lease is there, or has been missing for long.
func (l *Lease) await(ctx context.Context) {
	late, again := time.NewTimer(makeAfter), time.NewTicker(retryPeriod)
	defer late.Stop()
	defer again.Stop()
	for {
		_, err := l.client.CoordinationV1().Leases(l.namespace).Get(ctx, Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return // who cannot ask says so as a candidate
		}
		select {
		case <-again.C:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// term is one candidacy, and what follows if it succeeds.
func (l *Lease) term(ctx context.Context, work func(context.Context)) error {
	won := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.namespace, Name: Name},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
		},
		LeaseDuration: duration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { won <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				l.log.Info("who scales to zero and writes the mesh's configuration", "control plane", identity, "this one", identity == l.identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", l.namespace, Name, err)
	}
	// Not ctx: it is given back only when the work has ended.
	candidacy, resign := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(candidacy)
	}()
	defer func() { resign(); <-ended }()
	select {
	case held := <-won:
		l.serve(ctx, held, work)
	case <-ctx.Done():
	case <-ended: // lost in the moment that it was won
	}
	return nil
}

// serve calls work until it returns, with what ends when ctx or held does.
func (l *Lease) serve(ctx, held context.Context, work func(context.Context)) {
	turn, end := context.WithCancel(held)
	defer end()
	defer context.AfterFunc(ctx, end)()
	l.held.Store(true)
	over := make(chan struct{})
	context.AfterFunc(turn, func() {
		defer close(over)
		l.held.Store(false)
	})
	work(turn)
	end()
	<-over
}
