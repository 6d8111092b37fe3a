//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/nodelabel"
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
  annotations: {headstart.dev/volumes: "models=s3://BUCKET/meshtest/VOLUME/", headstart.dev/store: footage}
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
	for name, c := range map[string]struct{ file, extra, mounts, since string }{
		"volume": {file: "/headstart/volumes/models/a/weights"},
		"volume-emptydir": {"/opt/models/a/weights", "volumes: [{name: models, emptyDir: {}}]",
			"volumeMounts: [{name: models, mountPath: /opt/models}]", ""},
		"volume-user-namespace": {file: "/headstart/volumes/models/a/weights", extra: "hostUsers: false", since: "1.33"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.since != "" {
				apiservertest.Since(t, in, c.since, c.extra)
			}
			readsVolume(t, name, "volume", c.file, c.extra, c.mounts, object)
		})
	}
}

// readsVolume runs a pod whose program reads a file of its volume, and returns the pod's node.
func readsVolume(t *testing.T, name, volume, file, extra, mounts string, want []byte) (node string) {
	t.Helper()
	apply(t, strings.NewReplacer("NAME", name, "VOLUME", volume, "FILE", file, "EXTRA", extra, "MOUNTS", mounts,
		"BUCKET", testbed.Bucket).Replace(volumePod))
	eventually(t, "the program's end", func(ctx context.Context) error {
		phase, err := in.Output(ctx, nil, "kubectl", "-n", plain, "get", "pod", name, "-o", "jsonpath={.status}")
		if err == nil && !strings.Contains(phase, `"phase":"Succeeded"`) {
			err = fmt.Errorf("the pod is not through: %s", phase)
		}
		return err
	})
	if got := kubectl(t, "-n", plain, "logs", name); got != sum(want) {
		t.Errorf("the program has read %q", got)
	}
	return kubectl(t, "-n", plain, "get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
}

// One node gets a large volume, and later pods of it go there.
func TestPodsGoWhereTheirVolumeIs(t *testing.T) {
	apiservertest.Since(t, in, "1.36", "MutatingAdmissionPolicy v1")
	object := bytes.Repeat([]byte("a model's weights "), 4<<20)
	if err := in.Cloud.S3.Put(t.Context(), "meshtest/large/weights", bytes.NewReader(object)); err != nil {
		t.Fatal(err)
	}
	const file = "/headstart/volumes/models/weights"
	last := in.Nodes()[len(in.Nodes())-1].Name
	readsVolume(t, "large-first", "large", file, "nodeSelector: {kubernetes.io/hostname: "+last+"}", "", object)
	label := nodelabel.Key(plain, "s3://"+testbed.Bucket+"/meshtest/large/")
	eventually(t, "the node's label", func(ctx context.Context) error {
		labelled, err := in.Output(ctx, nil, "kubectl", "get", "nodes", "-l", label, "-o", "jsonpath={.items[*].metadata.name}")
		if err == nil && labelled != last {
			err = fmt.Errorf("nodes with %s: %q", label, labelled)
		}
		return err
	})
	for k := range 3 {
		if node := readsVolume(t, fmt.Sprint("large-next-", k), "large", file, "", "", object); node != last {
			t.Errorf("a pod went to %s, and its volume is on %s", node, last)
		}
	}
}
