package ingress_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/buffertest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const readyTimeout = 20 * time.Second

// noPlacement is what the control plane's side says at its deadline.
func noPlacement(ctx context.Context, _ *nodeapi.Activate) (*nodeapi.Bound, error) {
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, problem.New(http.StatusGatewayTimeout, "ActivationTimeout", "", "nothing was placed")
	}
	return nil, ctx.Err()
}

// unready and stalled wait for nothing but the deadline, unlike neverReady and stall,
// whose channel is of no bubble of synctest's.
func unready(ctx context.Context, _ string) (netip.AddrPort, error) {
	<-ctx.Done()
	return netip.AddrPort{}, ctx.Err()
}

func stalled(ctx context.Context, _ source.Reference, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// placedLate takes most of the placement's time.
func placedLate(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	time.Sleep(ingress.Placement - time.Second)
	return &nodeapi.Bound{Instance: target, Node: "edge-1"}, nil
}

// One deadline, counted from the arrival, is for all that a request waits for before it
// is delivered. What is missing then is told, before the gateway gives up.
func TestOneDeadlineBeforeTheDelivery(t *testing.T) {
	const late = readyTimeout + ingress.Grace
	for name, c := range map[string]struct {
		prepare      func(*rig)
		within       time.Duration // the ready timeout; none: readyTimeout
		waited       time.Duration
		title, field string
		onPeer       bool
		before       string // in milliseconds, on the node that hands the request over
	}{
		"input":                    {prepare: func(r *rig) { r.store.Before = stalled }, waited: late, title: "StoreTimeout", field: "headstart.dev/input"},
		"input, on the other node": {prepare: func(r *rig) { r.store.Before = stalled }, waited: late, title: "StoreTimeout", field: "headstart.dev/input", onPeer: true},
		"instance, on the other node, after a wait here": {
			prepare: func(r *rig) { r.instances.ready = unready }, waited: late - 12*time.Second, title: "ReadyTimeout",
			field: "headstart.dev/ready-timeout", onPeer: true, before: "12000",
		},
		"an older daemon hands it over": {
			prepare: func(r *rig) { r.instances.ready = unready }, waited: late, title: "ReadyTimeout",
			field: "headstart.dev/ready-timeout", onPeer: true,
		},
		"an odd wait": {
			prepare: func(r *rig) { r.instances.ready = unready }, waited: late, title: "ReadyTimeout",
			field: "headstart.dev/ready-timeout", onPeer: true, before: "-12000",
		},
		"input after the placement":  {prepare: func(r *rig) { r.store.Before, r.cp.activate = stalled, placedLate }, waited: late, title: "StoreTimeout", field: "headstart.dev/input"},
		"instance":                   {prepare: func(r *rig) { r.instances.ready = unready }, waited: late, title: "ReadyTimeout", field: "headstart.dev/ready-timeout"},
		"instance and input":         {prepare: func(r *rig) { r.instances.ready, r.store.Before = unready, stalled }, waited: late, title: "ReadyTimeout", field: "headstart.dev/ready-timeout"},
		"instance that says so":      {prepare: func(r *rig) { r.instances.ready, r.store.Before = lateReady, stalled }, waited: readyTimeout, title: "ReadyTimeout", field: "headstart.dev/ready-timeout"},
		"placement":                  {prepare: func(r *rig) { r.cp.activate = noPlacement }, waited: ingress.Placement, title: "ActivationTimeout"},
		"placement, little patience": {prepare: func(r *rig) { r.cp.activate = noPlacement }, within: time.Second, waited: time.Second + ingress.Grace, title: "ActivationTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newNode(t, nil)
				r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(cmp.Or(c.within, readyTimeout)) })
				ref := r.put("some", "", []byte("input"))
				c.prepare(r)
				req, h := request(t, "POST", withInput, newID(), ref, nil), r.Gateway()
				if c.onPeer {
					req.Header.Set("x-headstart-instance", target)
					req.Header.Set("x-headstart-waited", c.before)
					h = r.Peers()
				}
				if r.instances.ready == nil {
					r.instances.ready = readyNowhere
				}
				began := time.Now()
				wantProblem(t, call(h, req), http.StatusGatewayTimeout, c.title, c.field)
				if waited := time.Since(began); waited != c.waited {
					t.Errorf("it waited %v, want %v", waited, c.waited)
				}
				logged := r.logs.String()
				if c.title == "StoreTimeout" && !strings.Contains(logged, "headstart.dev/ready-timeout") {
					t.Errorf("the log does not say what bounds the wait: %s", logged)
				}
				want := []string{c.title}
				if name == "instance that says so" { // to the control plane, too
					want = nil
				}
				if got := r.cp.told(); !slices.Equal(got, want) {
					t.Errorf("the operator is told %v, want %v", got, want)
				}
			})
		})
	}
}

// asked is a peer that keeps what it is told of the wait, each time.
type asked struct{ waited []string }

func (a *asked) RoundTrip(req *http.Request) (*http.Response, error) {
	a.waited = append(a.waited, req.Header.Get("x-headstart-waited"))
	return nil, errors.New("no answer")
}

// The other node is told how much of the deadline is left.
func TestTheWaitIsHandedOverToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peer asked
		r := newNode(t, &peer)
		r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
			time.Sleep(3 * time.Second)
			return &nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"}, nil
		}
		wantProblem(t, call(r.Gateway(), request(t, "GET", withoutInput, newID(), "", nil)), http.StatusBadGateway, "PeerUnreachable", "")
		if len(peer.waited) < 2 || peer.waited[0] != "3000" || peer.waited[1] != "6000" { // placed again, after no pause
			t.Errorf("the request has waited %v ms", peer.waited)
		}
	})
}

// An input that has to be copied to be seen by its sandbox has no longer.
func TestTheDeadlineIsThatOfACopyToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		disk, err := buffer.OpenFiles(filepath.Join(state, "buffer"))
		if err != nil {
			t.Fatal(err)
		}
		r := newNodeOver(t, "edge-1", nil, buffer.New(buffer.Quota{}, buffer.Tier{Name: "redis", Limit: bufferLimit, Medium: buffertest.Mute{}},
			buffer.Tier{Name: "disk", Limit: bufferLimit, Medium: disk}), state)
		r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(readyTimeout) })
		r.instances.ready = readyNowhere
		req := request(t, "POST", withInput, newID(), r.put("some", "", []byte("input")), nil)
		began := time.Now()
		wantProblem(t, call(r.Gateway(), req), http.StatusGatewayTimeout, "StoreTimeout", "headstart.dev/input")
		if waited := time.Since(began); waited != readyTimeout+ingress.Grace {
			t.Errorf("it waited %v", waited)
		}
	})
}

func lateReady(ctx context.Context, id string) (netip.AddrPort, error) {
	time.Sleep(readyTimeout)
	return failReady(ctx, id)
}
