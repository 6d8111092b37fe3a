package policy_test

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var jobStores = stores.Stores{{Name: "default", Kind: stores.KindS3, Buckets: []string{"videos"}}}

func TestAJobsAnnotations(t *testing.T) {
	got, err := policy.ParseJob(map[string]string{policy.KeyInput: "s3://videos/a b.mjpeg", policy.KeyInputLimit: "1Mi", policy.KeyReadyTimeout: "5m",
		policy.KeyReadBy: "socket", "example.com/x": "y"}, jobStores, nil)
	if err != nil || got.Input != "s3://videos/a b.mjpeg" || got.InputLimit != 1<<20 || got.ReadyTimeout != 5*time.Minute || !got.ReadBySocket || got.Store != "default" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := policy.ParseJob(map[string]string{policy.KeyReadBy: "file"}, jobStores, nil); err != nil || got.ReadBySocket || got.Input != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAJobsMistakes(t *testing.T) {
	const known = "headstart.dev/input, headstart.dev/store, headstart.dev/input-limit, headstart.dev/ready-timeout, headstart.dev/read-by, " +
		"headstart.dev/volumes, headstart.dev/volumes-wait, headstart.dev/volumes-late, headstart.dev/s3, headstart.dev/connections, headstart.dev/connections-by"
	for _, tt := range []struct{ key, value, want string }{
		{policy.KeyInput, "s3://videos/{header.x-key}", `headstart.dev/input: "s3://videos/{header.x-key}" has a placeholder, and a job has no request whose headers could fill it; write it like s3://videos/camera-7/1.mjpeg`},
		{policy.KeyInput, "body", `headstart.dev/input: "body" is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://videos/camera-7/1.mjpeg`},
		{policy.KeyInput, "s3://private/a", `headstart.dev/input: "s3://private/a" reads a bucket that store default does not allow; use one of videos, or ask the operator to allow it`},
		{policy.KeyReadBy, "fd", `headstart.dev/read-by: "fd" is not how a job reads its input; use file or socket`},
		{
			"headstart.dev/input.mask", "s3://videos/a",
			"headstart.dev/input.mask: is for functions: a job has one input; use headstart.dev/input",
		},
		{policy.KeyCallers, "media", "headstart.dev/callers: is not a Headstart annotation; remove it; known keys are " + known},
		{"headstart.dev/readby", "file", "headstart.dev/readby: is not a Headstart annotation; did you mean headstart.dev/read-by? Known keys are " + known},
	} {
		_, err := policy.ParseJob(map[string]string{tt.key: tt.value}, jobStores, nil)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %s\n got %v\nwant %s", tt.key, tt.value, err, tt.want)
		}
	}
}
