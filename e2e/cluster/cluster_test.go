//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster"
)

// deployment has one pod on each node.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello}
spec:
  replicas: 3
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: hello}}}
      containers:
      - name: hello
        image: ` + image + `
        args: [serve]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: hello}
spec:
  selector: {app: hello}
  ports: [{port: 80, targetPort: 8080}]
`

func TestCluster(t *testing.T) {
	// A run that was cut off may have left something. A cluster that runs is somebody's: then
	// this fails, and says so.
	if err := cluster.Sweep(t.Context(), cluster.Config{}); err != nil {
		t.Fatal(err)
	}
	if left := residue(t); len(left) > 0 {
		t.Fatalf("left after sweeping:\n%s", strings.Join(left, "\n"))
	}
	limit := inotifyLimit(t)
	t.Run("life", func(t *testing.T) {
		c := up(t)
		t.Run("its registry hands images to nodes", func(t *testing.T) { pushAndPull(t, c) })
		t.Run("a service is reached by its name", func(t *testing.T) { serviceByName(t, c) })
		t.Run("a pod sees its node's files", func(t *testing.T) { nodeFiles(t, c) })
		t.Run("pods outlive containerd", func(t *testing.T) { restartContainerd(t, c) })
		t.Run("the API server may be away", func(t *testing.T) { apiServerAway(t, c) })
		t.Run("a lost node comes back", func(t *testing.T) { loseNode(t, c) })
	})
	if left := residue(t); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
	if after := inotifyLimit(t); after != limit {
		t.Errorf("this machine's limit was %s and is %s", limit, after)
	}
}

func inotifyLimit(t *testing.T) string {
	t.Helper()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	return string(limit)
}

func pushAndPull(t *testing.T, c *cluster.Cluster) {
	first := c.Nodes()[0]
	if err := first.ImportImage(t.Context(), helloImage(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Run(t.Context(), "ctr", "--namespace", "k8s.io", "images", "push", "--plain-http", image); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, deployment, "apply", "-f", "-")
	kubectl(t, c, "", "rollout", "status", "deployment/hello", "--timeout=90s")
}

// pod runs a pod to its end and returns what it wrote.
func pod(t *testing.T, c *cluster.Cluster, name, spec string) string {
	t.Helper()
	// A kubectl of 1.30 takes what begins with a brace for JSON.
	kubectl(t, c, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {restartPolicy: Never, %s}\n", name, spec), "apply", "-f", "-")
	kubectl(t, c, "", "wait", "pod/"+name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
	return kubectl(t, c, "", "logs", name)
}

func serviceByName(t *testing.T, c *cluster.Cluster) {
	for _, host := range []string{"hello", "hello.default.svc.cluster.local"} {
		got := pod(t, c, "get-"+strings.ReplaceAll(host, ".", "-"), fmt.Sprintf(`containers: [{name: get, image: %q, args: [get, "http://%s/"]}]`, image, host))
		if !strings.HasPrefix(got, "hello-") {
			t.Errorf("%s: %q", host, got)
		}
	}
	got := kubectl(t, c, "", "exec", "deployment/hello", "--", "/hello", "get", "http://hello/")
	if !strings.HasPrefix(got, "hello-") {
		t.Errorf("by exec: %q", got)
	}
	address := kubectl(t, c, "", "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
	out, err := exec.CommandContext(t.Context(), "curl", "--silent", "--fail", "--max-time", "10", "http://"+address+"/").Output()
	if err != nil || !strings.HasPrefix(string(out), "hello-") {
		t.Errorf("from this machine: %q, %v", out, err)
	}
}

func nodeFiles(t *testing.T, c *cluster.Cluster) {
	// A mark in each directory, of this node alone.
	dirs := []string{"/run/headstart", "/opt/headstart", "/var/lib/headstart"}
	for _, n := range c.Nodes() {
		for _, dir := range dirs {
			if _, err := n.Run(t.Context(), "sh", "-c", fmt.Sprintf("mkdir -p %[1]s && : >%[1]s/mark-%[2]s", dir, n.Name)); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "mark-"+n.Name)); err == nil {
				t.Errorf("%s of %s is this machine's", dir, n.Name)
			}
		}
	}
	for _, n := range c.Nodes() {
		got := pod(t, c, "list-"+n.Name, fmt.Sprintf(`nodeName: %s,
			volumes: [{name: root, hostPath: {path: /}}, {name: run, hostPath: {path: /run/headstart}}],
			containers: [{name: list, image: %q, args: [list, /root/run/headstart, /root/opt/headstart, /root/var/lib/headstart, /run/headstart],
				volumeMounts: [{name: root, mountPath: /root}, {name: run, mountPath: /run/headstart}]}]`, n.Name, image))
		if want := strings.Repeat("mark-"+n.Name+"\n", len(dirs)+1); got != want {
			t.Errorf("%s: %q", n.Name, got)
		}
	}
}

func restartContainerd(t *testing.T, c *cluster.Cluster) {
	before := kubectl(t, c, "", "get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	for _, n := range c.Nodes() {
		if err := c.RestartContainerd(t.Context(), n.Name); err != nil {
			t.Fatal(err)
		}
	}
	got := pod(t, c, "after-restart", fmt.Sprintf(`containers: [{name: get, image: %q, args: [get, "http://hello/"]}]`, image))
	if !strings.HasPrefix(got, "hello-") {
		t.Errorf("%q", got)
	}
	after := kubectl(t, c, "", "get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	if before != after {
		t.Errorf("containers: %s, then %s", before, after)
	}
}

func apiServerAway(t *testing.T, c *cluster.Cluster) {
	other, err := cluster.Attach(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := tryKubectl(t.Context(), c, "", "version", "--request-timeout=2s"); err == nil {
		t.Errorf("it answers: %s", out)
	}
	if err := other.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "", "rollout", "status", "deployment/hello", "--timeout=90s")
}

func loseNode(t *testing.T, c *cluster.Cluster) {
	lost := c.Nodes()[1]
	if err := c.StopNode(t.Context(), lost.Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if ready := readiness(t, c, lost.Name); ready == "True" {
			return fmt.Errorf("%s is ready", lost.Name)
		}
		return nil
	})
	if err := c.StartNode(t.Context(), lost.Name); err != nil {
		t.Fatal(err)
	}
	// What was on its disk is still there.
	if _, err := lost.Run(t.Context(), "ls", "/opt/headstart/mark-"+lost.Name); err != nil {
		t.Error(err)
	}
	got := pod(t, c, "after-loss", fmt.Sprintf(`nodeName: %s, containers: [{name: get, image: %q, args: [get, "http://hello/"]}]`, lost.Name, image))
	if !strings.HasPrefix(got, "hello-") {
		t.Errorf("%q", got)
	}
	kubectl(t, c, "", "rollout", "status", "deployment/hello", "--timeout=90s")
}

func readiness(t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	return kubectl(t, c, "", "get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
}

func TestAKilledClusterIsSwept(t *testing.T) {
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"=1")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("up\n"))
	if _, err := out.Read(line); err != nil || string(line) != "up\n" {
		t.Errorf("%q, %v", line, err)
	}
	startPods(t)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // "signal: killed"
	if len(residue(t)) == 0 {
		t.Error("a killed cluster leaves nothing, so this test shows nothing")
	}
	if err := cluster.Sweep(t.Context(), cluster.Config{}); err != nil {
		t.Error(err)
	}
	if left := residue(t); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// startPods starts pods on the running cluster, whose processes nobody but the cluster's own
// containerds started.
func startPods(t *testing.T) {
	c, err := cluster.Up(t.Context(), cluster.Config{Reuse: true})
	if err != nil {
		t.Error(err)
		return
	}
	defer down(t, c)
	kubectl(t, c, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: sleepers}
spec:
  replicas: 6
  selector: {matchLabels: {app: sleepers}}
  template:
    metadata: {labels: {app: sleepers}}
    spec:
      containers: [{name: sleep, image: "cluster.test/pause:1", imagePullPolicy: Never}]
`, "apply", "-f", "-")
	kubectl(t, c, "", "rollout", "status", "deployment/sleepers", "--timeout=90s")
}

// residue lists what of a cluster is on this machine.
func residue(t *testing.T) (left []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, cluster.DefaultDir) || strings.Contains(line, "hsk8s") {
			left = append(left, "mount "+line)
		}
	}
	for _, pattern := range []string{"/run/netns/hsk8s*", "/sys/fs/cgroup/hsk8s", "/sys/fs/cgroup/*/hsk8s", "/sys/class/net/hsk8s*", cluster.DefaultDir + "/[^l]*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	for _, probe := range [][]string{{"ip", "route", "show", "root", "10.96.0.0/16"}, {"ip", "route", "show", "root", "10.99.0.0/16"}} {
		out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > 0 {
			left = append(left, "route "+string(out))
		}
	}
	return append(left, processes(t)...)
}

// processes lists those that belong to a cluster: by what they were told, or by their cgroup.
func processes(t *testing.T) (left []string) {
	t.Helper()
	table, err := process.Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		proc := "/proc/" + strconv.Itoa(p.PID)
		// A process that has just ended has no files.
		command, _ := os.ReadFile(proc + "/cmdline")
		cgroups, _ := os.ReadFile(proc + "/cgroup")
		if strings.Contains(string(command), cluster.DefaultDir+"/") || cluster.Has(string(cgroups)) {
			left = append(left, "process "+strconv.Itoa(p.PID)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}
