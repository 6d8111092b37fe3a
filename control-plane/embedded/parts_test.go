package embedded

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// Somebody who waits sees for what; what is quick is not worth a word.
func TestSlowStartsAreAnnounced(t *testing.T) {
	failed := errors.New("no port")
	for name, c := range map[string]struct {
		takes time.Duration
		err   error
		want  []string
	}{
		"quick":       {takes: 900 * time.Millisecond},
		"slow":        {takes: 7200 * time.Millisecond, want: []string{"waiting for gateway-edge (1 s)", "waiting for gateway-edge (4 s)", "waiting for gateway-edge (7 s)", "gateway-edge: ready after 7.2 s"}},
		"slow, fails": {takes: 2 * time.Second, err: failed, want: []string{"waiting for gateway-edge (1 s)"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				err := announced(func(step string) { got = append(got, step) }, "gateway-edge", func() error {
					time.Sleep(c.takes)
					return c.err
				})
				if d := cmp.Diff(c.want, got); d != "" || !errors.Is(err, c.err) {
					t.Error(err, d)
				}
			})
		})
	}
}

// What has become of the processes is where the control plane reads it, as soon as it happens.
func TestPartsAreWritten(t *testing.T) {
	dir := t.TempDir()
	p := &Platform{o: Options{RunDir: dir, Progress: func(step string) { t.Error(step) }}}
	exits := make(chan process.Exit, 1)
	p.daemons, p.gateways, p.containerds = process.New(func(e process.Exit) { exits <- e }), process.New(func(process.Exit) {}), process.New(func(process.Exit) {})
	p.daemons.Watch(p.writeParts)
	if got, err := admin.ReadParts(dir); got != nil || err != nil {
		t.Errorf("before: %+v, %v", got, err)
	}
	if err := p.start(t.Context(), p.daemons, "", process.Spec{Name: "gateway-edge", Path: "/bin/sh", Args: []string{"-c", "exit 3"}}); err != nil {
		t.Fatal(err)
	}
	<-exits
	p.daemons.Stop(t.Context())
	got, err := admin.ReadParts(dir)
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if g := got[0]; g.Name != "gateway-edge" || g.State != "Ended" || g.LastExit != "exit status 3" || g.ExitedAt.IsZero() || g.Since.IsZero() {
		t.Errorf("the part is %+v", g)
	}
}
