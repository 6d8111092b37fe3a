//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/functions/boto"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// script reads an object, stores it again, and says what it has read. It has no word of endpoints or credentials. Then it
// stores it once more, as a file by its socket.
const script = `
import boto3, hashlib, http.client, os, socket
s3 = boto3.client('s3')
content = s3.get_object(Bucket='BUCKET', Key='meshtest/s3/in')['Body'].read()
s3.put_object(Bucket='BUCKET', Key='meshtest/s3/NAME', Body=content)
again = s3.get_object(Bucket='BUCKET', Key='meshtest/s3/NAME')['Body'].read()
with open(os.environ['HEADSTART_OUTPUT_DIR'] + '/made', 'wb') as f:
    f.write(content)
daemon = http.client.HTTPConnection('headstart')
daemon.sock = socket.socket(socket.AF_UNIX)
daemon.sock.connect(os.environ['HEADSTART_SOCKET'])
daemon.request('POST', '/output/made?to=s3://BUCKET/meshtest/s3/NAME-made')
answer = daemon.getresponse()
made = answer.read() or s3.get_object(Bucket='BUCKET', Key='meshtest/s3/NAME-made')['Body'].read() == content
print(hashlib.sha256(content).hexdigest(), content == again, answer.status, made, flush=True)
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
			want := sum(object) + " True 204 True"
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

// behind stores an object that is written behind, and says how the store will know it.
const behind = `
import boto3, time
s3 = boto3.client('s3')
content = s3.get_object(Bucket='BUCKET', Key='meshtest/s3/in')['Body'].read()
for n in range(60):
    tag = s3.put_object(Bucket='INTERIM', Key='meshtest/s3/%d' % n, Body=content)['ETag']
    if tag.endswith('-1"'): # the node does so some time after it has read the list
        break
    time.sleep(1)
print(n, tag, flush=True)
`

// reads reads it on another node, at once.
const reads = `
import boto3, hashlib
content = boto3.client('s3').get_object(Bucket='INTERIM', Key='meshtest/s3/KEY')['Body'].read()
print(hashlib.sha256(content).hexdigest(), flush=True)
`

// What one node has acknowledged all nodes read.
func TestAWriteBehindIsReadOnAnotherNode(t *testing.T) {
	importImage(t)
	object := bytes.Repeat([]byte("a frame of a video "), 500_000)
	if err := in.Cloud.S3.Put(t.Context(), "meshtest/s3/in", bytes.NewReader(object)); err != nil {
		t.Fatal(err)
	}
	nodes := in.Nodes()
	runScript(t, "s3-behind", plain, "nodeName: "+nodes[0].Name, behind)
	key, tag, _ := strings.Cut(words(t, "s3-behind"), " ")
	if !strings.HasSuffix(tag, `-1"`) {
		t.Errorf("it was written through: %s", tag)
	}
	runScript(t, "s3-reads", plain, "nodeName: "+nodes[len(nodes)-1].Name, strings.ReplaceAll(reads, "KEY", key))
	if said := words(t, "s3-reads"); said != sum(object) {
		t.Errorf("another node reads %s", said)
	}
}

// busy stores and reads until it is told to stop. SDKs try again a few times, and so does it not.
const busy = `
import boto3, os
s3 = boto3.client('s3')
wrong, n = [], 0
while True:
    n += 1
    content = os.urandom(300_000 + n)
    for bucket in ('BUCKET', 'INTERIM'):
        try:
            s3.put_object(Bucket=bucket, Key='meshtest/s3/busy', Body=content)
            if s3.get_object(Bucket=bucket, Key='meshtest/s3/busy')['Body'].read() != content:
                wrong.append('%d: another content' % n)
        except Exception as e:
            wrong.append('%d: %s' % (n, e))
    if s3.list_objects_v2(Bucket='BUCKET', Prefix='meshtest/s3/stop').get('Contents'):
        break
print(n, wrong, flush=True)
`

// A program that stores and reads all the time notes nothing of an update of its node's daemon.
func TestS3OutlivesAnUpdate(t *testing.T) {
	importImage(t)
	if err := in.Cloud.S3.Remove(t.Context(), testbed.Bucket, "meshtest/s3/stop"); err != nil {
		t.Fatal(err)
	}
	runScript(t, "s3-busy", plain, "", busy)
	kubectl(t, "-n", plain, "wait", "pod/s3-busy", "--for=condition=Ready", "--timeout=2m")
	const daemons = "daemonset/headstart-node"
	kubectl(t, "-n", world.System, "rollout", "restart", daemons)
	kubectl(t, "-n", world.System, "rollout", "status", daemons, "--timeout", "3m")
	if err := in.Cloud.S3.Put(t.Context(), "meshtest/s3/stop", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	n, wrong, _ := strings.Cut(words(t, "s3-busy"), " ")
	t.Logf("%s times", n)
	if times, err := strconv.Atoi(n); err != nil || times < 3 || wrong != "[]" {
		t.Errorf("of %s times: %s", n, wrong)
	}
}

// words are what a program of runScript has printed, once it has ended.
func words(t *testing.T, name string) (said string) {
	t.Helper()
	eventually(t, name+"'s words", func(ctx context.Context) (err error) {
		said, err = in.Output(ctx, nil, "kubectl", "-n", plain, "logs", name, "-c", "python")
		if said = strings.TrimSpace(said); err == nil && said == "" {
			err = errors.New("it has said nothing yet")
		}
		return err
	})
	return said
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
	program = strings.NewReplacer("NAME", name, "BUCKET", testbed.Bucket, "INTERIM", testbed.Interim).Replace(program)
	apply(t, strings.NewReplacer("SCRIPT", fmt.Sprintf("%q", program), "NAMESPACE", namespace, "NAME", name, "EXTRA", extra).Replace(s3Pod))
}
