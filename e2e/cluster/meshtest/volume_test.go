//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// volumeKey is of an object of the volume, below a directory.
const volumeKey = "meshtest/volume/a/weights"

const volumePod = `
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: ` + plain + `
  annotations: {headstart.dev/volumes: "models=s3://BUCKET/meshtest/volume/", headstart.dev/store: footage}
spec:
  runtimeClassName: headstart
  restartPolicy: Never
  EXTRA
  containers:
  - name: witness
    image: ` + witnessImage + `
    imagePullPolicy: Never
    args: [digest, FILE]
    MOUNTS
`

// An ordinary program finds the files of its volume when it starts: it does not wait for them itself.
func TestAVolumeIsThereBeforeTheProgram(t *testing.T) {
	object := bytes.Repeat([]byte("a model's weights "), 100_000)
	if err := in.Cloud.S3.Put(t.Context(), volumeKey, bytes.NewReader(object)); err != nil {
		t.Fatal(err)
	}
	want := sum(object)
	for name, c := range map[string]struct{ file, extra, mounts string }{
		"volume": {file: "/headstart/volumes/models/a/weights"},
		"volume-emptydir": {"/opt/models/a/weights", "volumes: [{name: models, emptyDir: {}}]",
			"volumeMounts: [{name: models, mountPath: /opt/models}]"},
		"volume-user-namespace": {file: "/headstart/volumes/models/a/weights", extra: "hostUsers: false"},
	} {
		t.Run(name, func(t *testing.T) {
			apply(t, strings.NewReplacer("NAME", name, "FILE", c.file, "EXTRA", c.extra, "MOUNTS", c.mounts,
				"BUCKET", testbed.Bucket).Replace(volumePod))
			eventually(t, "the program's end", func(ctx context.Context) error {
				phase, err := in.Output(ctx, nil, "kubectl", "-n", plain, "get", "pod", name, "-o", "jsonpath={.status}")
				if err == nil && !strings.Contains(phase, `"phase":"Succeeded"`) {
					err = fmt.Errorf("the pod is not through: %s", phase)
				}
				return err
			})
			if got := kubectl(t, "-n", plain, "logs", name); got != want {
				t.Errorf("the program has read %q, want %q", got, want)
			}
		})
	}
}
