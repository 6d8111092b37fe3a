//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/functions/boto"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// script reads an object, stores it again, and says what it has read. It has no word of endpoints or credentials.
const script = `
import boto3, hashlib
s3 = boto3.client('s3')
content = s3.get_object(Bucket='BUCKET', Key='meshtest/s3/in')['Body'].read()
s3.put_object(Bucket='BUCKET', Key='meshtest/s3/NAME', Body=content)
again = s3.get_object(Bucket='BUCKET', Key='meshtest/s3/NAME')['Body'].read()
print(hashlib.sha256(content).hexdigest(), content == again, flush=True)
`

const s3Pod = `
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: NAMESPACE
  annotations: {headstart.dev/s3: footage}
spec:
  runtimeClassName: headstart
  restartPolicy: Never
  EXTRA
  containers:
  - name: python
    image: ` + boto.Ref + `
    imagePullPolicy: Never
    command: ["/usr/bin/python3.11", "-c", SCRIPT]
`

// An unmodified program finds its store, behind a sidecar and in a user namespace as well, and not on the host's network.
func TestAProgramFindsS3(t *testing.T) {
	importImage(t)
	object := bytes.Repeat([]byte("a frame of a video "), 100_000)
	if err := in.Cloud.S3.Put(t.Context(), "meshtest/s3/in", bytes.NewReader(object)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ namespace, extra string }{
		"s3-plain":          {plain, ""},
		"s3-user-namespace": {plain, "hostUsers: false"},
		"s3-sidecar":        {strict, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runScript(t, name, c.namespace, c.extra, script)
			want := sum(object) + " True"
			eventually(t, "the program's words", func(ctx context.Context) error {
				said, err := in.Output(ctx, nil, "kubectl", "-n", c.namespace, "logs", name, "-c", "python")
				if err == nil && strings.TrimSpace(said) != want {
					err = fmt.Errorf("it has said %q", said)
				}
				return err
			})
			stored, err := in.Cloud.S3.Get(t.Context(), "meshtest/s3/"+name)
			if err != nil || !bytes.Equal(stored, object) {
				t.Errorf("the store has %d bytes, %v", len(stored), err)
			}
		})
	}
	t.Run("host network", func(t *testing.T) {
		runScript(t, "s3-host", plain, "hostNetwork: true", "import os; print(os.environ.get('AWS_ENDPOINT_URL_S3'), flush=True)")
		eventually(t, "the program's words", func(ctx context.Context) error {
			pod, err := in.Output(ctx, nil, "kubectl", "-n", plain, "get", "pod", "s3-host", "-o", "jsonpath={.status}")
			if err != nil || !strings.Contains(pod, `"phase":"Succeeded"`) {
				return fmt.Errorf("the pod is not through: %s, %w", pod, err)
			}
			said, err := in.Output(ctx, nil, "kubectl", "-n", plain, "logs", "s3-host", "-c", "python")
			if err == nil && strings.TrimSpace(said) != "None" {
				err = fmt.Errorf("it has said %q", said)
			}
			return err
		})
	})
}

// importImage brings the image of the program to the nodes.
func importImage(t *testing.T) {
	t.Helper()
	image, err := boto.Image(in.Source("out/bin"))
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "boto.tar")
	if err := os.WriteFile(archive, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := in.ImportImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

func runScript(t *testing.T, name, namespace, extra, program string) {
	t.Helper()
	program = strings.NewReplacer("NAME", name, "BUCKET", testbed.Bucket).Replace(program)
	apply(t, strings.NewReplacer("SCRIPT", fmt.Sprintf("%q", program), "NAMESPACE", namespace, "NAME", name, "EXTRA", extra).Replace(s3Pod))
}
