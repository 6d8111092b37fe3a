package main

import (
	"fmt"
	"testing"
)

// While daemons follow each other, programs that run ahead are asked by both.
func TestTheDaemonBeforeMayAsk(t *testing.T) {
	c := config{platform: platformKubernetes, stateDir: t.TempDir(), peerListen: "10.1.0.7:9461"}
	for _, step := range []struct {
		listen   string
		succeeds bool
		want     string
	}{
		{"10.1.0.7:9461", true, "[10.1.0.7]"}, {"10.1.0.9:9461", true, "[10.1.0.9 10.1.0.7]"}, {"[fd00::1]:9461", true, "[fd00::1 10.1.0.9]"},
		{"10.1.0.4:9461", false, "[10.1.0.4]"}, {"10.1.0.4:9461", true, "[10.1.0.4]"},
	} {
		c.peerListen = step.listen
		if all, err := c.noteCallers(step.succeeds); err != nil || fmt.Sprint(all) != step.want {
			t.Errorf("%s: %v, %v, want %s", step.listen, all, err, step.want)
		}
	}
	if all, err := (config{platform: platformLocal, peerListen: "127.0.0.1:1"}).noteCallers(false); all != nil || err != nil {
		t.Errorf("on one machine: %v, %v", all, err)
	}
}
