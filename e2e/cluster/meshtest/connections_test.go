//go:build cluster

package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/functions/postgres"
)

// databasePassword is in Secrets alone: no pod but the servers' has it.
const databasePassword = "of-the-server-only"

// destinations are the chart's: a server without a mesh, and one that takes connections of the mesh alone.
func destinations() (string, error) {
	var list []map[string]any
	for name, d := range map[string]struct{ namespace, origin string }{
		"orders": {plain, "sandbox"}, "ledger": {strict, "sandbox"}, "outside": {strict, "node"},
	} {
		list = append(list, map[string]any{"name": name, "namespaces": []string{d.namespace}, "origin": d.origin,
			"postgres": map[string]any{"address": "database." + d.namespace + ".svc.cluster.local:5432", "user": "orders",
				"credentialsSecret": "database"}})
	}
	list = append(list, map[string]any{"name": "sessions", "namespaces": []string{plain, strict}, "origin": "node",
		"redis": map[string]any{"address": redisHost + ":6379"}})
	b, err := json.Marshal(list)
	return "destinations=" + string(b), err
}

// databaseSecret is as the operator makes it.
const databaseSecret = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + world.System + `}
---
apiVersion: v1
kind: Secret
metadata: {name: database, namespace: ` + world.System + `}
stringData: {credentials: "password = ` + databasePassword + `"}
`

const databasePod = `
apiVersion: v1
kind: Service
metadata: {name: database, namespace: NAMESPACE}
spec:
  selector: {app: database}
  ports: [{name: tcp-postgres, port: 5432}]
---
apiVersion: v1
kind: Pod
metadata: {name: database, namespace: NAMESPACE, labels: {app: database}}
spec:
  containers:
  - name: postgres
    image: ` + postgres.Ref + `
    imagePullPolicy: Never
    securityContext: {runAsUser: UID, runAsGroup: UID}
    args: ["-c", SCRIPT]
    env: [{name: PGUSER, value: orders}, {name: PGPASSWORD, value: SECRET}]
    ports: [{containerPort: 5432}]
    readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}
    volumeMounts: [{name: tmp, mountPath: /tmp}]
  volumes: [{name: tmp, emptyDir: {}}]
`

const clientPod = `
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: NAMESPACE
  annotations: {headstart.dev/connections: "DESTINATIONS"}
spec:
  runtimeClassName: headstart
  restartPolicy: Never
  containers:
  - name: first
    image: ` + postgres.Ref + `
    imagePullPolicy: Never
    args: ["-c", SCRIPT]
    env: [{name: PGUSER, value: orders}, {name: PGDATABASE, value: orders}, {name: PGCONNECT_TIMEOUT, value: "40"}]
    volumeMounts: [{name: tmp, mountPath: /tmp}]
  - name: second
    image: ` + postgres.Ref + `
    imagePullPolicy: Never
    args: ["-c", "sleep 3; ls -A /headstart/socket/* 2>/dev/null; echo done"]
  volumes: [{name: tmp, emptyDir: {}}]
`

// Programs in pods of two containers are logged in, without a password of theirs: from their pods' own addresses, by their
// sidecars where the server takes nothing else, and while the daemons are updated.
func TestPodsAreConnected(t *testing.T) {
	image, err := postgres.Image()
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "postgres.tar")
	if err := os.WriteFile(archive, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := in.ImportImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{plain, strict} {
		apply(t, strings.NewReplacer("NAMESPACE", namespace, "SCRIPT", fmt.Sprintf("%q", postgres.Serve), "SECRET", databasePassword,
			"UID", strconv.Itoa(postgres.User)).Replace(databasePod))
	}
	for _, namespace := range []string{plain, strict} {
		kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod/database", "--timeout=90s")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for name, container := range map[string]string{"headstart-node": "node", "headstart-controlplane": "controlplane"} { // later tests replace them
			t.Logf("%s says\n%s", name, kubectl(t, "-n", world.System, "logs", "-l", "app.kubernetes.io/name="+name, "-c", container, "--prefix", "--tail=50"))
		}
	})
	t.Run("from the pod", fromThePod)
	t.Run("by the sidecar", bySidecar)
	t.Run("while daemons are updated", whileDaemonsAreUpdated)
}

func start(t *testing.T, name, namespace, destinations, script string) {
	t.Helper()
	apply(t, strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "DESTINATIONS", destinations, "SCRIPT", fmt.Sprintf("%q", script)).Replace(clientPod))
}

// says waits for what a container says.
func says(t *testing.T, namespace, pod, container string, so func(said string) bool) string {
	t.Helper()
	var said string
	eventually(t, "the words of "+pod+"'s container "+container, func(ctx context.Context) (err error) {
		said, err = in.Output(ctx, nil, "kubectl", "-n", namespace, "logs", pod, "-c", container)
		if said = strings.TrimSpace(said); err == nil && !so(said) {
			err = fmt.Errorf("it has said %q", said)
		}
		return err
	})
	return said
}

func fromThePod(t *testing.T) {
	const pod = "connected"
	start(t, pod, plain, "orders", `psql -h /headstart/socket/orders -Atc "select current_user, host(inet_client_addr())" 2>&1; echo done`)
	said := says(t, plain, pod, "first", func(said string) bool { return strings.HasSuffix(said, "done") })
	if want := "orders|" + kubectl(t, "-n", plain, "get", "pod", pod, "-o", "jsonpath={.status.podIP}") + "\ndone"; said != want {
		t.Errorf("the program has said %q, want %q", said, want)
	}
	if said := says(t, plain, pod, "second", func(said string) bool { return strings.HasSuffix(said, "done") }); strings.Contains(said, "PGSQL") {
		t.Errorf("the second container finds %q", said)
	}
}

func bySidecar(t *testing.T) {
	const pod = "connected"
	start(t, pod, strict, "ledger,outside", `
psql -h /headstart/socket/ledger -Atc "select current_user" 2>&1
PGCONNECT_TIMEOUT=8 psql -h /headstart/socket/outside -Atc "select current_user" > /dev/null 2>&1 && echo "the node is let in"
echo done`)
	if said := says(t, strict, pod, "first", func(said string) bool { return strings.HasSuffix(said, "done") }); said != "orders\ndone" {
		t.Errorf("the program has said %q", said)
	}
}

// A session that the pod's shim has joined goes on while all daemons are replaced; each new one works, too.
func whileDaemonsAreUpdated(t *testing.T) {
	const pod = "queries"
	start(t, pod, plain, "orders", `
(while [ ! -e /tmp/stop ]; do echo "select pg_backend_pid();"; sleep 0.1; done; echo "select 'last';") |
	psql -h /headstart/socket/orders -At -v ON_ERROR_STOP=1 2>&1
psql -h /headstart/socket/orders -Atc "select 'again'" 2>&1`)
	lines := func(said string) []string { return strings.Split(said, "\n") }
	says(t, plain, pod, "first", func(said string) bool { return len(lines(said)) > 10 })
	const daemons = "daemonset/headstart-node"
	kubectl(t, "-n", world.System, "rollout", "restart", daemons)
	kubectl(t, "-n", world.System, "rollout", "status", daemons, "--timeout", "3m")
	kubectl(t, "-n", plain, "exec", pod, "-c", "first", "--", "/bin/sh", "-c", ": > /tmp/stop")
	said := lines(says(t, plain, pod, "first", func(said string) bool {
		return strings.HasSuffix(said, "again") || strings.Contains(said, "rror")
	}))
	if n := len(said); n < 13 || said[n-2] != "last" || said[n-1] != "again" {
		t.Fatalf("the session ends with %q", said[max(0, n-3):])
	}
	if pids := slices.Compact(said[:len(said)-2]); len(pids) != 1 {
		t.Errorf("the queries were answered by %q", pids)
	}
}
