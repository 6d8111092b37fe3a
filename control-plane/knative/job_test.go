package knative_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const jobManifest = `apiVersion: batch/v1
kind: Job
metadata:
  name: digest
  namespace: media
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 600
  template:
    metadata:
      annotations:
        headstart.dev/input: s3://videos/camera-7/1.mjpeg
        headstart.dev/read-by: socket
    spec:
      runtimeClassName: headstart
      restartPolicy: Never
      nodeSelector:
        kubernetes.io/hostname: edge
      containers:
        - name: digest
          image: registry.example.com/digest:1
          command: [/digest]
          args: [--fast]
          env:
            - {name: THRESHOLD, value: "0.5"}
          resources:
            limits: {cpu: 500m, memory: 64Mi}
`

var jobDestinations = destinations.Destinations{{Name: "orders", Kind: destinations.KindPostgres},
	{Name: "sessions", Kind: destinations.KindRedis, Namespaces: []string{"shop"}}}

var jobStores = stores.Stores{{Name: "default", Kind: stores.KindS3, Buckets: []string{"videos"}}}

func TestParseJob(t *testing.T) {
	got, err := knative.ParseJob(strings.NewReader(jobManifest), jobStores, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Default()
	p.Input, p.ReadBySocket = "s3://videos/camera-7/1.mjpeg", true
	want := platform.Job{Name: "media/digest", Image: "registry.example.com/digest:1", Command: []string{"/digest"}, Args: []string{"--fast"},
		Env: map[string]string{"THRESHOLD": "0.5"}, CPULimitMillis: 500, MemoryLimit: 64 << 20, Node: "edge", Timeout: 10 * time.Minute, Policy: p}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestParseJobRefusesByName(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"another kind":    {"kind: Job", "kind: CronJob", `kind: "CronJob" is not supported by the embedded platform; use Job of batch/v1, or run on Kubernetes`},
		"twice":           {"backoffLimit: 0", "completions: 2", "spec.completions: not supported by the embedded platform: a job runs once; write 1, remove it, or run on Kubernetes"},
		"again":           {"backoffLimit: 0", "backoffLimit: 6", "spec.backoffLimit: not supported by the embedded platform: a job runs once, whatever becomes of it; write 0, remove it, or run on Kubernetes"},
		"restarts":        {"restartPolicy: Never", "restartPolicy: OnFailure", "spec.template.spec.restartPolicy: is not Never; write Never, or run on Kubernetes: the embedded platform runs a job once"},
		"another runtime": {"runtimeClassName: headstart", "runtimeClassName: gvisor", "spec.template.spec.runtimeClassName: not supported by the embedded platform; use headstart or remove it"},
		"a port":          {"command: [/digest]", "ports: [{containerPort: 80}]", "spec.template.spec.containers[0].ports: not supported by the embedded platform; remove it; a job takes no requests"},
		"a volume":        {"command: [/digest]", "volumeMounts: []", "spec.template.spec.containers[0].volumeMounts: not supported by the embedded platform; remove it or run on Kubernetes"},
		"a template":      {"camera-7/1.mjpeg", "{header.x-key}", `spec.template.metadata.annotations[headstart.dev/input]: "s3://videos/{header.x-key}" has a placeholder, and a job has no request whose headers could fill it; write it like s3://videos/camera-7/1.mjpeg`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := knative.ParseJob(strings.NewReader(strings.Replace(jobManifest, c.old, c.new, 1)), jobStores, nil)
			if err == nil || !strings.HasSuffix(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "document 1, line ") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	for manifest, want := range map[string]string{
		"": "no document in the manifest; it needs a Job of batch/v1", jobManifest + "---\n" + jobManifest: "more than one document; run one Job of batch/v1 at a time",
	} {
		if _, err := knative.ParseJob(strings.NewReader(manifest), jobStores, nil); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Who deploys a job as a function is told how it is run.
// A function's volumes stand on its template, where Kubernetes has them on its pods.
func TestTheTemplateHasVolumes(t *testing.T) {
	const manifest = `apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: chat
spec:
  template:
    metadata:
      annotations:
        headstart.dev/volumes: models=s3://videos/llama/
        headstart.dev/volumes-late: start
    spec:
      containers:
        - image: registry.example.com/chat:1
`
	got, err := knative.Parse(strings.NewReader(manifest), jobStores, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Volumes{Store: "default", Wait: time.Minute, StartLate: true, List: []reference.Volume{
		{Name: "models", Prefix: reference.Reference{Scheme: "s3", Bucket: "videos", Key: "llama/"}}}}
	if d := cmp.Diff(want, got[0].Policy.Volumes); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for old, why := range map[string]string{
		"llama/\n": `document 1, line 9: function default/chat: spec.template.metadata.annotations[headstart.dev/volumes]: "models=s3://videos/x" is not a list of volumes: <name>=s3://<bucket>/<prefix>/, separated by commas; write it like models=s3://models/llama/`,
		"start\n":  `document 1, line 10: function default/chat: spec.template.metadata.annotations[headstart.dev/volumes-late]: "x" is not what follows when volumes are late; use fail or start`,
	} {
		_, err := knative.Parse(strings.NewReader(strings.Replace(manifest, old, "x\n", 1)), jobStores, nil)
		if err == nil || err.Error() != why {
			t.Errorf(" got %v\nwant %s", err, why)
		}
	}
}

func TestAJobIsNoFunction(t *testing.T) {
	_, err := knative.Parse(strings.NewReader(jobManifest), jobStores, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "kind: \"Job\" is not supported by the embedded platform; run it by `headstart run`") {
		t.Error(err)
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add(jobManifest)
	f.Add("apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: []}}}\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		j, err := knative.ParseJob(strings.NewReader(manifest), jobStores, nil)
		if err == nil && (j.Image == "" || !strings.Contains(j.Name, "/") || strings.Contains(j.Policy.Input, "{")) {
			t.Errorf("accepted as %+v", j)
		}
	})
}

// Connections stand on the template as well, and on a job's.
func TestTheTemplateHasConnections(t *testing.T) {
	const manifest = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat, namespace: shop}
spec:
  template:
    metadata:
      annotations: {headstart.dev/connections: "orders,sessions", headstart.dev/connections-by: connect}
    spec:
      containers: [{image: "registry.example.com/chat:1"}]
`
	got, err := knative.Parse(strings.NewReader(manifest), nil, jobDestinations)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Connections{Destinations: []string{"orders", "sessions"}, By: "connect",
		Kinds: map[string]string{"orders": "postgres", "sessions": "redis"}}
	if d := cmp.Diff(want, got[0].Policy.Connections); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	const line = "document 1, line 7: function media/chat: spec.template.metadata.annotations[headstart.dev/connections]: " +
		`"sessions" is not among the operator's destinations; use one of orders, or ask the operator to allow it`
	_, err = knative.Parse(strings.NewReader(strings.Replace(manifest, "shop", "media", 1)), nil, jobDestinations)
	if err == nil || err.Error() != line {
		t.Errorf("got  %v\nwant %s", err, line)
	}
	asks := strings.Replace(jobManifest, "annotations:\n", "annotations:\n        headstart.dev/connections: orders\n", 1)
	j, err := knative.ParseJob(strings.NewReader(asks), jobStores, jobDestinations)
	want = policy.Connections{Destinations: []string{"orders"}, By: "socket", Kinds: map[string]string{"orders": "postgres"}}
	if d := cmp.Diff(want, j.Policy.Connections); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}
