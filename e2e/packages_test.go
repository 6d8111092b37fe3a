package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A machine that was set up has no server more than before, not even after its next boot. One that
// was there stays as it is.
func TestSetupLeavesNoServiceEnabled(t *testing.T) {
	script, err := os.ReadFile("packages.sh")
	if err != nil {
		t.Fatal(err)
	}
	for packages, want := range map[string]string{
		"need redis-server /none; need wrk /none": "apt-get install redis-server wrk\nsystemctl disable redis-server\n",
		"need redis-server sh; need wrk /none":    "apt-get install wrk\n",
		"need redis-server sh":                    "",
		"need pgbouncer /none":                    "apt-get install pgbouncer\nsystemctl disable pgbouncer\n",
		"need postgresql-15 /none":                "create_main_cluster = false\napt-get install postgresql-15\n",
	} {
		dir := t.TempDir()
		for program, text := range map[string]string{
			"id":        "echo 0",
			"apt-get":   `cat "$CREATECLUSTER_D"/* >>"$CALLS" 2>/dev/null; shift 4; [ -x "$POLICY_RC_D" ] && echo apt-get install "$@" >>"$CALLS"`,
			"systemctl": `shift; echo systemctl "$@" >>"$CALLS"`,
		} {
			if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		calls, policy, clusters := filepath.Join(dir, "calls"), filepath.Join(dir, "policy"), filepath.Join(dir, "clusters")
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", string(script)+packages+"; install_missing test")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+calls, "POLICY_RC_D="+policy,
			"CREATECLUSTER_D="+clusters)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		called, _ := os.ReadFile(calls) // none is not there
		if d := cmp.Diff(want, strings.Join(strings.Split(string(called), " --no-install-recommends"), "")); d != "" {
			t.Errorf("%s: %s", packages, d)
		}
		if _, err := os.Stat(policy); err == nil {
			t.Errorf("%s: the policy is left", packages)
		}
		if left, _ := os.ReadDir(clusters); len(left) > 0 {
			t.Errorf("%s: what makes no cluster is left", packages)
		}
	}
}
