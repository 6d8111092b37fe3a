package volume_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "media_chat_u-1"

// versions are made after a time, or not at all.
type versions struct {
	after map[string]time.Duration // by the volumes' names
	fails error
	held  map[string]string

	mu       sync.Mutex
	asked    []string
	released []string
}

func (v *versions) Version(ctx context.Context, of tree.Prefix, pod, name string) (string, bool, error) {
	v.mu.Lock()
	v.asked = append(v.asked, of.Namespace+" "+of.Store+" "+of.Prefix.String()+" "+pod+" "+name)
	v.mu.Unlock()
	select {
	case <-time.After(v.after[name]):
		return "/volumes/" + name, name == "models", v.fails
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
}

func (v *versions) Held(string) (map[string]string, error) { return v.held, nil }

func (v *versions) Release(pod string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.released = append(v.released, pod)
	return nil
}

func (v *versions) Sweep(func(string) bool) error { return nil }

func message(wait time.Duration) *nodeapi.Volumes {
	return &nodeapi.Volumes{Id: id, Name: "media/chat", Store: "default", Wait: durationpb.New(wait), Volumes: []*nodeapi.Volume{
		{Name: "models", Prefix: "s3://models/llama/"}, {Name: "words", Prefix: "s3://words/"}}}
}

// mounts is what the shim of a container asks for; sources have commas between.
func mounts(t *testing.T, s *volume.Set) (string, error) {
	t.Helper()
	need, err := s.Bring(sandboxes.Sandbox{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := need.Volumes(t.Context())
	var sources []string
	for _, m := range got {
		if !m.GetReadOnly() || !strings.HasSuffix(m.GetDestination(), strings.TrimPrefix(m.GetSource(), "/volumes")) {
			t.Errorf("mount %v", m)
		}
		sources = append(sources, m.GetSource())
	}
	return strings.Join(sources, ","), err
}

func TestVolumes(t *testing.T) {
	minute := map[string]time.Duration{"words": time.Minute}
	for name, tt := range map[string]struct {
		versions *versions
		change   func(*nodeapi.Volumes)
		want     string
		reason   problem.Reason
		after    time.Duration
	}{
		"there":                     {versions: &versions{}, want: "/volumes/models,/volumes/words"},
		"within the wait":           {versions: &versions{after: minute}, want: "/volumes/models,/volumes/words", after: time.Minute},
		"too late":                  {versions: &versions{after: map[string]time.Duration{"words": time.Hour}}, reason: "VolumeLate", after: 2 * time.Minute},
		"without a wait":            {versions: &versions{after: minute}, change: func(m *nodeapi.Volumes) { m.Wait = nil }, reason: "VolumeLate"},
		"late, and it starts":       {versions: &versions{after: map[string]time.Duration{"models": time.Hour}}, change: func(m *nodeapi.Volumes) { m.StartLate = true }, want: "/volumes/words", after: 2 * time.Minute},
		"not to be had":             {versions: &versions{fails: source.Forbidden("default", "no")}, reason: problem.ReasonStoreForbidden},
		"not to be had, and starts": {versions: &versions{fails: errors.New("x")}, change: func(m *nodeapi.Volumes) { m.StartLate = true }},
		"of an earlier daemon":      {versions: &versions{after: minute, held: map[string]string{"words": "/volumes/words"}}, want: "/volumes/models,/volumes/words"},
		"refused": {versions: &versions{}, change: func(m *nodeapi.Volumes) {
			m.Refused, m.StartLate = &nodeapi.Refused{Status: 422, Reason: "AnnotationsRefused"}, true
		}, reason: "AnnotationsRefused"},
		"of a newer control plane": {versions: &versions{}, change: func(m *nodeapi.Volumes) { m.Volumes[0].Prefix = "oci://a/b" }, reason: "VolumesUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := volume.New(tt.versions, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
				defer s.Close()
				m := message(2 * time.Minute)
				if tt.change != nil {
					tt.change(m)
				}
				s.Begin(m)
				synctest.Wait()
				began := time.Now()
				got, err := mounts(t, s)
				if got != tt.want || problem.ReasonOf(err) != tt.reason || time.Since(began) != tt.after {
					t.Errorf("got %s, %v, after %s", got, err, time.Since(began))
				}
			})
		})
	}
}

// A container that asks after a failure has the volume tried again, and gets the version that others of its pod have.
func TestAVolumeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{fails: errors.New("the store is away")}
		s := volume.New(v, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		defer s.Close()
		s.Begin(message(time.Minute))
		synctest.Wait()
		if got, err := mounts(t, s); err == nil {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		v.fails = nil
		for range 2 {
			if _, err := mounts(t, s); err != nil {
				t.Error(err)
			}
		}
		s.Begin(message(0)) // the control plane repeats itself
		synctest.Wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.asked) < 4 || len(v.asked) > 6 || v.asked[0] == v.asked[1] {
			t.Errorf("asked for %q", v.asked)
		}
		for _, asked := range v.asked {
			if asked != "media default s3://models/llama/ "+id+" models" && asked != "media default s3://words/ "+id+" words" {
				t.Errorf("asked for %q", asked)
			}
		}
	})
}

// A sandbox may be ahead of the control plane's word, and that may never come.
func TestASandboxAheadOfItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := volume.New(&versions{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		defer s.Close()
		time.AfterFunc(14*time.Second, func() { s.Begin(message(time.Minute)) })
		if got, err := mounts(t, s); err != nil || got == "" {
			t.Errorf("told after 14 s: %s, %v", got, err)
		}
		s.Release(id)
		began := time.Now()
		if _, err := mounts(t, s); problem.ReasonOf(err) != "VolumesUnknown" || time.Since(began) != 15*time.Second {
			t.Errorf("never told: %v after %s", err, time.Since(began))
		}
	})
}

// What nobody needs any more is given up.
func TestAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versions{after: map[string]time.Duration{"models": time.Hour}}
		s := volume.New(v, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		defer s.Close()
		s.Begin(message(10 * time.Minute))
		time.AfterFunc(time.Second, func() { s.Release(id) })
		began := time.Now()
		if _, err := mounts(t, s); problem.ReasonOf(err) != problem.ReasonInstanceGone || time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		synctest.Wait()
		if len(v.released) != 1 || v.released[0] != id {
			t.Errorf("let go of %q", v.released)
		}
	})
}
