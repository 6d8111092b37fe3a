package knative_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	notHere = "not supported by the embedded platform; remove it or run on Kubernetes"
	podSpec = "spec.template.spec"
	first   = podSpec + ".containers[0]"
)

// Each case changes one thing in testdata/full.yaml; want is what follows the position
// and the function's name.
func TestParseRefusesAField(t *testing.T) {
	full := read(t, "full.yaml")
	for _, tt := range []struct{ old, replacement, want string }{
		// The service.
		{"name: fire", "name: Fire", `metadata.name: "Fire" is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{"name: fire", "name: ''", "metadata.name: is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit"},
		{"namespace: city", "namespace: ''", "metadata.namespace: is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit"},
		{"name: fire\n", "name: fire\n  uid: x\n", "metadata.uid: " + notHere},
		{"namespace: city", "namespace: ../x", `metadata.namespace: "../x" is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{"team: video", "team: 7", "metadata.labels.team: is not a string; put it in quotes if it is meant as one"},
		{
			"example.com/owner: someone", "headstart.dev/owner: me",
			"metadata.annotations[headstart.dev/owner]: is not a Headstart annotation; remove it; known keys are headstart.dev/input, headstart.dev/input.<name>, headstart.dev/path, headstart.dev/store, headstart.dev/input-limit, headstart.dev/scale-to-zero, headstart.dev/ready-timeout, headstart.dev/trigger, headstart.dev/trigger-store, headstart.dev/trigger-tries, headstart.dev/callers, headstart.dev/routing, headstart.dev/mode, headstart.dev/workflow, headstart.dev/state, headstart.dev/read-by, headstart.dev/s3-learn, headstart.dev/speculation",
		},
		{"input-limit: 256Mi", "input-limit: 256", "metadata.annotations[headstart.dev/input-limit]: is not a string; put it in quotes if it is meant as one"},
		{"input-limit: 256Mi", "input-limit: 9Gi", `metadata.annotations[headstart.dev/input-limit]: "9Gi" is more than 5Gi; use at most 5Gi`},
		{"headstart.dev/store: archive", "example.com/a: b", `metadata.annotations[headstart.dev/input]: "s3://videos/{header.x-key}" reads a bucket that store default does not allow; use one of models, or ask the operator to allow it`},
		{"example.com/owner: someone", `autoscaling.knative.dev/min-scale: "0"`, "metadata.annotations[autoscaling.knative.dev/min-scale]: has no effect here; move it to spec.template.metadata.annotations"},
		{"headstart.dev/scale-to-zero: 5m", "headstart.dev/mode: observe", `metadata.annotations[headstart.dev/mode]: "observe" is not supported by the embedded platform; remove it or run on Kubernetes: here requests have no other way than Headstart's`},
		{"spec:\n  template:", "spec:\n  traffic: []\n  template:", "spec.traffic: " + notHere},
		{"kind: Service", "kind: Service\nstatus: {}", "status: not supported by the embedded platform; remove it; the cluster writes it"},
		{"kind: Service", "kind: Service\nkind: Service", "kind: is given twice; remove one of them"},
		{"kind: Service", "kind: Service\n7: x", "7: is a key that is not a string; put it in quotes"},
		{"kind: Service", "kind: Service\n\"\\e[2J\": x", `"\x1b[2J": ` + notHere},

		// The template.
		{"      labels:\n        tier", "      name: fire-7\n      labels:\n        tier", "spec.template.metadata.name: not supported by the embedded platform; remove it; the embedded platform names revisions itself"},
		{`min-scale: "0"`, `min-scale: "1"`, `spec.template.metadata.annotations[autoscaling.knative.dev/min-scale]: "1" is not supported by the embedded platform; use "0" or run on Kubernetes`},
		{`min-scale: "0"`, `minScale: "0"`, "spec.template.metadata.annotations[autoscaling.knative.dev/minScale]: " + notHere},
		{`max-scale: "3"`, `max-scale: "-1"`, `spec.template.metadata.annotations[autoscaling.knative.dev/max-scale]: "-1" is not supported by the embedded platform; use a whole number`},
		{"class: kpa", "class: hpa", `spec.template.metadata.annotations[autoscaling.knative.dev/class]: "hpa.autoscaling.knative.dev" is not supported by the embedded platform; use kpa.autoscaling.knative.dev or run on Kubernetes`},
		{`min-scale: "0"`, `window: 60s`, "spec.template.metadata.annotations[autoscaling.knative.dev/window]: not supported by the embedded platform; set headstart.dev/scale-to-zero in metadata.annotations"},
		{`autoscaling.knative.dev/min-scale: "0"`, `headstart.dev/input: s3://videos/a`, "spec.template.metadata.annotations[headstart.dev/input]: does not belong here; move it to metadata.annotations"},
		{`autoscaling.knative.dev/min-scale: "0"`, `sidecar.istio.io/inject: "true"`, "spec.template.metadata.annotations[sidecar.istio.io/inject]: " + notHere},

		// The pod.
		{"timeoutSeconds: 120", "timeoutSeconds: 601", podSpec + `.timeoutSeconds: "601" is out of range; use 1 to 600`},
		{"timeoutSeconds: 120", `timeoutSeconds: "120"`, podSpec + ".timeoutSeconds: is not an integer; write a number from 1 to 600 without quotes"},
		{"timeoutSeconds: 120", "timeoutSeconds: 0120", podSpec + ".timeoutSeconds: is not an integer; write a number from 1 to 600 without quotes"},
		{"containerConcurrency: 0", "containerConcurrency: 2", podSpec + ".containerConcurrency: limits of more than one request are not supported by the embedded platform; use 0 or 1, or run on Kubernetes"},
		{"kubernetes.io/hostname: edge-1", "disk: ssd", podSpec + ".nodeSelector.disk: " + notHere},
		{"kubernetes.io/hostname: edge-1", "kubernetes.io/hostname: a/b", podSpec + `.nodeSelector[kubernetes.io/hostname]: "a/b" is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{"nodeSelector:\n        kubernetes.io/hostname: edge-1", "volumes: [{name: a, hostPath: {path: /}}]", podSpec + ".volumes: " + notHere},
		{"nodeSelector:\n        kubernetes.io/hostname: edge-1", "nodeSelector: edge-1", podSpec + ".nodeSelector: is not a mapping; write fields as name: value"},
		{"        - name: user-container", "        - image: sidecar\n        - name: user-container", podSpec + ".containers: has 2 items; use at most 1"},

		// The container.
		{"image: registry.example.com/video/fire:1.2", "image: a b", first + `.image: "a b" is not an image reference; write it like registry.example.com/team/name:tag`},
		{"image: registry.example.com/video/fire:1.2", "image: ''", first + ".image: is not an image reference; write it like registry.example.com/team/name:tag"},
		{"image: registry.example.com/video/fire:1.2", "image:", first + ".image: is missing; name the container's image"},
		{"name: user-container", "name: a_b", first + `.name: "a_b" is not a DNS label; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{"name: user-container", "name: {}", first + ".name: is not a string; put it in quotes if it is meant as one"},
		{"imagePullPolicy: IfNotPresent", "imagePullPolicy: Always", first + `.imagePullPolicy: "Always" is not supported by the embedded platform; use IfNotPresent or Never`},
		{"imagePullPolicy: IfNotPresent", "volumeMounts: []", first + ".volumeMounts: " + notHere},
		{"imagePullPolicy: IfNotPresent", "securityContext: {privileged: true}", first + ".securityContext: " + notHere},
		{"command: [/fire]", "command: /fire", first + ".command: is not a list; start each item with a dash"},
		{"command: [/fire]", "command: [7]", first + ".command[0]: is not a string; put it in quotes if it is meant as one"},
		{"command: [/fire]", `command: ["/a\0b"]`, first + ".command[0]: holds a NUL character; remove it"},
		{"command: [/fire]", "command: [" + strings.Repeat("a,", 257) + "]", first + ".command: has 257 items; use at most 256"},
		{"command: [/fire]", "command: [" + strings.Repeat("a", 32<<10+1) + "]", first + ".command[0]: is longer than 32768 bytes; shorten it"},
		{`"0.5"`, `"$(MODE)"`, first + ".args[1]: holds $(MODE), which Kubernetes expands: not supported by the embedded platform; write the value out"},
		{`"0.5"`, `"a$$b"`, first + ".args[1]: holds $$, which Kubernetes expands: not supported by the embedded platform; write the value out"},

		// Misspelt fields. What is there already was not meant.
		{"command: [/fire]", "comand: [/fire]", first + ".comand: not supported by the embedded platform; did you mean command? If not, remove it or run on Kubernetes"},
		{"timeoutSeconds: 120", "timeoutsecond: 120", podSpec + ".timeoutsecond: not supported by the embedded platform; did you mean timeoutSeconds? If not, remove it or run on Kubernetes"},
		{"imagePullPolicy: If", "imagepullpolicy: If", first + ".imagepullpolicy: not supported by the embedded platform; did you mean imagePullPolicy? If not, remove it or run on Kubernetes"},
		{"containerConcurrency: 0", "timeoutSecond: 120", podSpec + ".timeoutSecond: " + notHere},

		// Its environment. No message repeats a value.
		{"value: fast", "value: $(PORT)-hunter2", first + ".env[0].value: holds $(PORT), which Kubernetes expands: not supported by the embedded platform; write the value out"},
		{"value: fast", "value: 7", first + ".env[0].value: is not a string; put it in quotes if it is meant as one"},
		{"value: fast", "value: on", first + ".env[0].value: is not a string; put it in quotes if it is meant as one"},
		{"value: fast", "valueFrom: {secretKeyRef: {name: a, key: b}}", first + ".env[0].valueFrom: not supported by the embedded platform; write the value out or run on Kubernetes"},
		{"name: MODE", "name: PORT", first + `.env[0].name: "PORT" is set by the platform; remove it`},
		{"name: MODE", "name: K_REVISION", first + `.env[0].name: "K_REVISION" is set by the platform; remove it`},
		{"name: MODE", "name: HEADSTART_INPUT", first + `.env[0].name: "HEADSTART_INPUT" is set by the platform; remove it`},
		{"name: MODE", "name: A=B", first + `.env[0].name: "A=B" is not a variable's name; use letters, digits, _, . and -, and no digit first`},
		{"name: MODE", "name: ''", first + ".env[0].name: is not a variable's name; use letters, digits, _, . and -, and no digit first"},
		{"name: MODE", "name:", first + ".env[0].name: is missing; name the variable"},
		{"name: EMPTY", "name: MODE", first + `.env[1].name: "MODE" is given twice; remove one of them`},
		{"- name: EMPTY", "- null", first + ".env[1]: is not a mapping; write fields as name: value"},

		// Its port and probe.
		{"name: http1", "name: h2c", first + `.ports[0].name: "h2c" is not supported by the embedded platform; use http1 or run on Kubernetes`},
		{"name: http1", "name: web", first + `.ports[0].name: "web" is not a protocol of Knative; use http1`},
		{"name: http1", "hostPort: 80", first + ".ports[0].hostPort: " + notHere},
		{"protocol: TCP", "protocol: UDP", first + ".ports[0].protocol: is not TCP; remove it"},
		{"protocol: TCP", "protocol: TCP\n            - containerPort: 1", first + ".ports: has 2 items; use at most 1"},
		{"port: 9000", "port: 9001", first + ".readinessProbe.httpGet.port: is not the container's port; remove it"},
		{"port: 9000", "scheme: HTTPS", first + ".readinessProbe.httpGet.scheme: " + notHere},
		{"path: /healthz", "path: healthz", first + `.readinessProbe.httpGet.path: "healthz" is not a path; write it like /healthz, percent-encoded, in at most 1024 bytes`},
		{"path: /healthz", `path: "/a HTTP/1.1\r\nx: y"`, first + `.readinessProbe.httpGet.path: "/a HTTP/1.1\r\nx: y" is not a path; write it like /healthz, percent-encoded, in at most 1024 bytes`},
		{"readinessProbe:", "readinessProbe:\n            tcpSocket: {}", first + ".readinessProbe.httpGet: and tcpSocket are both given; leave one"},
		{"readinessProbe:", "readinessProbe:\n            periodSeconds: 1", first + ".readinessProbe.periodSeconds: " + notHere},

		// Its resources.
		{"cpu: 1500m", "cpu: 0.0001", first + `.resources.limits.cpu: "0.0001" is finer than a thousandth; use 1m to 1024`},
		{"cpu: 1500m", "cpu: 2k", first + `.resources.limits.cpu: "2k" is out of range; use 1m to 1024`},
		{"cpu: 1500m", "cpu: [1]", first + ".resources.limits.cpu: is not a quantity; write it like 500m or 512Mi"},
		{"cpu: 1500m", "nvidia.com/gpu: 1", first + ".resources.limits[nvidia.com/gpu]: " + notHere},
		{"memory: 256Mi", "memory: 4096", first + `.resources.limits.memory: "4096" is out of range; use 6Mi to 16Ti`},
		{"memory: 64Mi", "ephemeral-storage: 1Gi", first + ".resources.requests.ephemeral-storage: " + notHere},
	} {
		t.Run(tt.want, func(t *testing.T) {
			if !strings.Contains(full, tt.old) {
				t.Fatalf("%q is not in the manifest", tt.old)
			}
			_, err := parse(strings.Replace(full, tt.old, tt.replacement, 1))
			if err == nil {
				t.Fatal("accepted")
			}
			_, got, _ := strings.Cut(err.Error(), ": ")
			got = strings.TrimPrefix(got, "function city/fire: ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v\n-want +got\n%s", err, diff)
			}
		})
	}
}
