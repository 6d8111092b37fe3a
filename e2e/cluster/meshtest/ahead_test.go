//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/functions/query/image"
)

const (
	redisImage = "headstart.local/redis:1"
	redisHost  = "redis." + plain + ".svc.cluster.local"
)

// redisPod is Debian's Redis, and a pod that asks others.
const redisPod = `
apiVersion: v1
kind: Service
metadata: {name: redis, namespace: ` + plain + `}
spec:
  selector: {app: redis}
  ports: [{name: tcp-redis, port: 6379}]
---
apiVersion: v1
kind: Pod
metadata: {name: redis, namespace: ` + plain + `, labels: {app: redis}}
spec:
  containers:
  - name: redis
    image: ` + redisImage + `
    imagePullPolicy: Never
    args: [--save, "", --protected-mode, "no"]
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: asker, namespace: ` + plain + `}
spec:
  containers:
  - name: asker
    image: ` + image.Ref + `
    imagePullPolicy: Never
    command: ["/usr/bin/python3.11", "-c", "import time; time.sleep(36000)"]
`

// aheadManifest is a function of an unmodified program, with a client of Redis.
const aheadManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}, annotations: PODS}
    spec:
      runtimeClassName: headstart
      terminationGracePeriodSeconds: 2
      nodeSelector: {kubernetes.io/hostname: NODE}
      containers:
      - name: query
        image: ` + image.Ref + `
        imagePullPolicy: Never
        command: COMMAND
        env: [{name: PORT, value: "8080"}, {name: REDIS_URL, value: "STORE"}]
        ports: [{containerPort: 8080}]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE, annotations: FUNCTION}
spec:
  selector: {app: NAME}
  ports: [{name: http, port: 80, targetPort: 8080}]
`

type stateful struct {
	name, namespace, node, command string
	// ahead: it may work before its turn, and has Redis at its socket.
	ahead bool
}

func (f stateful) manifest() string {
	pods, function, redis := "{}", "headstart.dev/callers: "+strict, "redis://"+redisHost+":6379"
	if f.ahead {
		pods, redis = "{headstart.dev/connections: sessions}", "unix:///headstart/socket/sessions/redis.sock"
		function += ", headstart.dev/speculation: allowed"
	}
	return strings.NewReplacer("NAMESPACE", f.namespace, "NAME", f.name, "NODE", f.node, "COMMAND", f.command, "PODS", pods,
		"FUNCTION", "{"+function+"}", "STORE", redis).Replace(aheadManifest)
}

// importQuery brings the images of the programs, and of Redis.
func importQuery(t *testing.T) {
	t.Helper()
	query, err := image.Build(in.Source("out/bin"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const server = "/usr/bin/redis-server"
	files := map[string]ociimage.File{server: {Source: server, Mode: 0o755}}
	if err := ociimage.AddLibraries(files, server); err != nil {
		t.Fatal(err)
	}
	var redis bytes.Buffer
	if err := ociimage.Build(&redis, ociimage.Image{Ref: redisImage, Entrypoint: []string{server}, Files: files}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"query": query, "redis": redis.Bytes()} {
		archive := filepath.Join(t.TempDir(), name+".tar")
		if err := os.WriteFile(archive, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := in.ImportImage(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
}

// startRedis starts a Redis, and the pod that asks others, with the images of what uses them.
func startRedis(t *testing.T) {
	t.Helper()
	importQuery(t)
	apply(t, redisPod)
	for _, pod := range []string{"redis", "asker"} {
		kubectl(t, "-n", plain, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=90s")
	}
}

// asks has the asking pod ask, and returns what is said.
func asks(ctx context.Context, pod string, program ...string) (string, error) {
	args := append([]string{"-n", plain, "exec", pod, "--"}, program...)
	out, err := in.Output(ctx, nil, "kubectl", args...)
	return strings.TrimSpace(out), err
}

// python is a program that connects, and says how that ends.
func python(address, port string) []string {
	return []string{"/usr/bin/python3.11", "-c", fmt.Sprintf(`import socket
try:
    socket.create_connection((%q, %s), timeout=5)
    print("connected")
except OSError as e:
    print(type(e).__name__)`, address, port)}
}

// aheads is what `headstart workflow show` says of a workflow: how many of its calls began before their turn, by their tasks.
func aheads(ctx context.Context, workflow string) (ahead map[string]int, err error) {
	var said []struct {
		Steps []struct {
			Task  string
			Ahead int
		}
	}
	if err := in.CLI(ctx, &said, "workflow", "show", workflow); err != nil {
		return nil, err
	}
	ahead = map[string]int{}
	for _, w := range said {
		for _, s := range w.Steps {
			ahead[s.Task[strings.LastIndex(s.Task, "/")+1:]] += s.Ahead
		}
	}
	return ahead, nil
}

// Unmodified programs in pods work before their turn, on a store as well, behind a sidecar and without one; nobody sees what does not
// count, and daemons may be replaced meanwhile.
func TestFunctionsRunAhead(t *testing.T) {
	startRedis(t)
	through := ingressGateway(t)
	node := kubectl(t, "-n", through.namespace, "get", "pod", through.name, "-o", "jsonpath={.spec.nodeName}")
	const serve = `["/query"]`
	slow := stateful{"ahead-slow", plain, node, serve, false}
	inGo := stateful{"ahead-go", strict, node, serve, true}
	inPython := stateful{"ahead-py", plain, node, `["/usr/bin/python3.11", "/query.py", "serve"]`, true}
	apply(t, strings.ReplaceAll(gatewayManifest, "NAMESPACE", strict))
	for _, f := range []stateful{slow, inGo, inPython} {
		apply(t, f.manifest())
	}
	var pods []pod
	for _, f := range []stateful{slow, inGo, inPython} {
		pods = append(pods, readyPod(t, f.namespace, "app="+f.name))
	}
	w := service{namespace: strict, name: "ahead", function: true}
	applyWorkflow(t, w, `  - slow: {call: http, with: {method: post, endpoint: 'http://ahead-slow.`+plain+`/redis?q=BLPOP+ahead:none+1'}}
  - go: {call: http, with: {method: post, endpoint: 'http://ahead-go.`+strict+`/redis?q=INCR+ahead:go'}}
  - py: {call: http, with: {method: post, endpoint: 'http://ahead-py.`+plain+`/redis?q=INCR+ahead:py'}}
`)
	ready(t, w, "True")
	known(t, through, w)
	runs := 0
	run := func(ctx context.Context) error {
		if _, err := runOf(ctx, through, w, `{}`, ""); err != nil {
			return err
		}
		runs++
		said, err := asks(ctx, "asker", "/usr/bin/redis-cli", "-h", redisHost, "MGET", "ahead:go", "ahead:py")
		if want := fmt.Sprintf("%d\n%d", runs, runs); err == nil && said != want {
			t.Fatalf("after %d runs the store has %q", runs, said)
		}
		return err
	}
	bothAhead := func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		ahead, err := aheads(ctx, w.namespace+"/"+w.name)
		if err == nil && (ahead["go"] == 0 || ahead["py"] == 0) {
			err = fmt.Errorf("after %d runs %v have begun before their turn", runs, ahead)
		}
		return err
	}
	eventually(t, "both run ahead", bothAhead)

	closed := pods[2]
	for _, c := range []struct{ what, from, to, port, want string }{
		{"another pod asks the program", "asker", closed.ip, "8080", "ConnectionRefusedError"},
		{"another pod asks that behind a sidecar", "asker", pods[1].ip, "8080", "ConnectionRefusedError"},
		{"another pod asks one that is open", "asker", pods[0].ip, "8080", "connected"},
		{"a closed program asks others", closed.name, redisHost, "6379", "gaierror"},
		{"by their addresses", closed.name, through.ip, "8080", "ConnectionRefusedError"},
	} {
		if said, err := asks(t.Context(), c.from, python(c.to, c.port)...); err != nil || said != c.want {
			t.Errorf("%s: %q, %v, want %s", c.what, said, err, c.want)
		}
	}

	// The next daemons do not know what programs are at work on that the ones before have had run ahead.
	const daemons = "daemonset/headstart-node"
	kubectl(t, "-n", world.System, "rollout", "restart", daemons)
	for range 5 { // no run is lost meanwhile
		if err := run(t.Context()); err != nil {
			t.Error(err)
		}
	}
	kubectl(t, "-n", world.System, "rollout", "status", daemons, "--timeout", "3m")
	eventually(t, "their programs are started again", func(ctx context.Context) error {
		for _, p := range pods[1:] {
			said, err := in.Output(ctx, nil, "kubectl", "-n", p.namespace, "get", "pod", p.name, "-o",
				`jsonpath={.status.containerStatuses[?(@.name=="query")].restartCount}`)
			if err != nil {
				return err
			}
			if n, err := strconv.Atoi(said); err != nil || n < 1 {
				return fmt.Errorf("%s was started again %q times", p.name, said)
			}
		}
		return nil
	})
	eventually(t, "both run ahead again", bothAhead) // the new daemons count from 0
}
