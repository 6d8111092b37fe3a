package instance_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// sockets note what is open.
type sockets struct {
	failure error

	mu   sync.Mutex
	open []string
}

func (s *sockets) Open(id, namespace string, dir *os.Root) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = dir.Close()
	if s.failure != nil {
		return s.failure
	}
	s.open = append(s.open, namespace+" "+id+" "+filepath.Base(dir.Name()))
	return nil
}

func (s *sockets) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(o string) bool { return o == "default "+id+" socket" })
}

func (s *sockets) want(t *testing.T, open ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.open, open) {
		t.Errorf("open are %q, want %q", s.open, open)
	}
}

// An instance has its socket from before its sandbox to its end, over restarts of the daemon.
func TestAnInstanceHasASocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		own := &sockets{}
		r.sockets = own
		r.restart()
		r.start("one", r.serving()...)
		r.ready("one")
		own.want(t, "default one socket")
		d, _ := r.set.Describe("one", "")
		path := filepath.Join(r.path, "one", "socket")
		want := &nodeapi.Mount{Source: path, Destination: "/headstart/socket", ReadOnly: true}
		if diff := cmp.Diff(want, d.GetMounts()[len(d.GetMounts())-1], protocmp.Transform()); diff != "" || d.GetEnv()["HEADSTART_SOCKET"] != "/headstart/socket/headstart.sock" {
			t.Errorf("%v (-want +got):\n%s", d, diff)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the function's user cannot get there: %v, %v", info, err)
		}

		next := &sockets{}
		r.sockets = next
		r.restart()
		next.want(t, "default one socket")
		r.set.Stop("one", time.Second)
		synctest.Wait()
		next.want(t)
		r.wantNothing("one")
	})
}

// Nothing but the socket needs a socket.
func TestAnInstanceWithoutASocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.sockets = &sockets{failure: errors.New("no room")}
		r.restart()
		r.start("one", r.serving()...)
		r.ready("one")
		d, _ := r.set.Describe("one", "")
		if _, has := d.GetEnv()["HEADSTART_SOCKET"]; has || len(d.GetMounts()) != 1 {
			t.Errorf("%v", d)
		}
		// Nor do those that an earlier version has made.
		if err := os.Remove(filepath.Join(r.path, "one", "socket")); err != nil {
			t.Fatal(err)
		}
		none := &sockets{}
		r.sockets = none
		r.restart()
		none.want(t)
		r.ready("one")
	})
}
