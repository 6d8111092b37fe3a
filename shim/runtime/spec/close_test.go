package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A program gets by no rules of its network: without that, others could see what it does, and why is said.
func TestClosed(t *testing.T) {
	const rest = `"a":1,"mounts":[{"type":"proc","destination":"/proc"},{"type":"bind","source":"/s","destination":"/in","options":["rbind","ro"]}]`
	const uid, pods = "1-2", "/var/lib/kubelet/pods/1-2/"
	mounted := func(source, destination string) string {
		return `{"mounts":[{"type":"bind","source":"` + source + `","destination":"` + destination + `","options":["rbind","rw"]}]}`
	}
	sidecar := uint32(1337)
	for name, tt := range map[string]struct{ before, after, why string }{
		"no capabilities": {`{` + rest + `}`, `{` + rest + `}`, ""},
		"the usual ones": {
			`{` + rest + `,"process":{"b":2,"capabilities":{"bounding":["CAP_CHOWN","CAP_NET_RAW"],"effective":["CAP_NET_RAW"],"permitted":[]}}}`,
			`{` + rest + `,"process":{"b":2,"capabilities":{"bounding":["CAP_CHOWN"],"effective":[],"permitted":[]}}}`, ""},
		"its network's own": {`{"process":{"capabilities":{"bounding":["CAP_NET_ADMIN"]}}}`, "", "its program has CAP_NET_ADMIN"},
		"privileged":        {`{"process":{"capabilities":{"effective":["CAP_CHOWN","CAP_SYS_ADMIN"]}}}`, "", "its program has CAP_SYS_ADMIN"},
		"a pod's hosts":     {mounted(pods+"etc-hosts", "/etc/hosts"), "", ""},
		"its last words":    {mounted(pods+"containers/main/9f", "/dev/termination-log"), "", ""},
		"an emptyDir":       {mounted(pods+"volumes/kubernetes.io~empty-dir/tmp", "/tmp"), "", ""},
		"what containerd makes": {
			mounted("/run/containerd/io.containerd.grpc.v1.cri/sandboxes/ab/shm", "/dev/shm"), "", ""},
		"another pod's emptyDir": {mounted("/var/lib/kubelet/pods/3/volumes/kubernetes.io~empty-dir/tmp", "/tmp"), "", "it can write to /tmp, which others may see"},
		"a claim":                {mounted(pods+"volumes/kubernetes.io~csi/pvc-1/mount", "/data"), "", "it can write to /data, which others may see"},
		"of the node":            {mounted("/srv", "/srv"), "", "it can write to /srv, which others may see"},
		"the sidecar's user":     {`{"process":{"user":{"uid":1337,"gid":1}}}`, "", "its program runs as user 1337, as its sidecar does"},
		"another user":           {`{"process":{"user":{"uid":1000}}}`, "", ""},
		"a volume":               {`{"mounts":[{"type":"bind","source":"/data","destination":"/shared","options":["rbind","rw"]}]}`, "", "it can write to /shared, which others may see"},
	} {
		got, why, err := Closed([]byte(tt.before), uid, &sidecar)
		if err != nil || why != tt.why {
			t.Errorf("%s: %q, %v, want %q", name, why, err, tt.why)
		}
		if tt.after == "" {
			tt.after = tt.before
		}
		if diff := cmp.Diff(value(t, []byte(tt.after)), value(t, got)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	if _, why, err := Closed([]byte(mounted(pods+"etc-hosts", "/etc/hosts")), "", nil); why == "" || err != nil {
		t.Errorf("outside Kubernetes, with a mount of the node's: %q, %v", why, err)
	}
	for _, broken := range []string{`[]`, `{"mounts":1}`, `{"process":{"capabilities":{"bounding":[1]}}}`, `{"process":{"capabilities":7}}`} {
		if _, _, err := Closed([]byte(broken), "", nil); err == nil {
			t.Errorf("%s is closed", broken)
		}
	}
}
