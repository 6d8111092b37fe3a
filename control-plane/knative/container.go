package knative

import (
	"strings"

	"github.com/distribution/reference"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
)

const (
	// maxItems bounds arguments and variables each: 256 of 32 KiB are more than a
	// document holds, and no program looks at more.
	maxItems = 256
	// defaultPort is what the Knative runtime contract gives a container without ports.
	defaultPort = 8080
	maxPort     = 65535
	// maxProbePath bounds the probe's path, in bytes; no probe comes near it.
	maxProbePath = 1024
	// maxImage bounds an image reference, in bytes: a name of 255, a tag of 128, a digest.
	maxImage = 512
)

// Bounds of the resource limits. Less memory than 6 MiB, Docker's own floor, kills the
// sandbox before the program runs. More than the upper bounds no machine has, and from a
// point on the arithmetic of cgroups overflows.
const (
	minCPU, maxCPU       = 1, 1024 * 1000   // thousandths of a core
	minMemory, maxMemory = 6 << 20, 1 << 44 // bytes
)

func container(o object, f *platform.Function) {
	// Generators write an empty name, which a cluster replaces.
	if name := o.take("name"); name.text() != "" {
		name.label()
	}
	f.Image = image(o.must("image", "name the container's image"))
	f.Env = environment(o.take("env"))
	f.Command = words(o.take("command"), f.Env)
	f.Args = words(o.take("args"), f.Env)
	f.Port = port(o.take("ports"))
	f.ProbePath = probe(o.take("readinessProbe").object(), int64(f.Port))
	resources(o.take("resources").object(), f)
	if v := o.take("imagePullPolicy"); v.present() {
		if s := v.text(); s != "IfNotPresent" && s != "Never" {
			v.reportAs(s, "is "+unsupported, "use IfNotPresent or Never")
		}
	}
	o.close()
}

// image returns an image reference in full, as the kubelet completes it and as an import names the
// image: fn is docker.io/library/fn:latest.
func image(v value) string {
	if !v.present() {
		return ""
	}
	s, ok := v.tryText()
	full, err := reference.ParseDockerRef(s)
	if ok && (err != nil || len(s) > maxImage) {
		v.reportAs(s, "is not an image reference", "write it like registry.example.com/team/name:tag")
	}
	if err != nil {
		return ""
	}
	return full.String()
}

// words returns a command or its arguments.
func words(v value, env map[string]string) []string {
	var ws []string
	for _, item := range v.list(maxItems) {
		ws = append(ws, item.text())
		refuseExpansion(item, env)
	}
	return ws
}

// port returns the port that the function listens on.
func port(v value) int32 {
	items := v.list(1)
	if len(items) == 0 {
		return defaultPort
	}
	o := items[0].object()
	if name := o.take("name"); name.present() {
		switch s := name.text(); s {
		case "", "http1":
		case "h2c":
			name.reportAs(s, "is "+unsupported, "use http1 or run on Kubernetes")
		default:
			name.reportAs(s, "is not a protocol of Knative", "use http1")
		}
	}
	if protocol := o.take("protocol"); protocol.present() && protocol.text() != "TCP" {
		protocol.report("is not TCP", "remove it")
	}
	n := o.take("containerPort").integer(1, maxPort, defaultPort)
	o.close()
	return int32(n)
}

// probe returns the path of an HTTP probe, empty for a TCP one.
func probe(o object, port int64) string {
	httpGet, tcpSocket := o.take("httpGet"), o.take("tcpSocket")
	if httpGet.present() && tcpSocket.present() {
		httpGet.report("and tcpSocket are both given", "leave one")
	}
	o.close()
	tcp := tcpSocket.object()
	probePort(tcp, port)
	tcp.close()
	if !httpGet.present() {
		return ""
	}
	get := httpGet.object()
	probePort(get, port)
	path := get.take("path")
	get.close()
	if !path.present() {
		return "/"
	}
	s := path.text()
	if !strings.HasPrefix(s, "/") || len(s) > maxProbePath || strings.ContainsFunc(s, notInPath) {
		path.reportAs(s, "is not a path", "write it like /healthz, percent-encoded, in at most 1024 bytes")
	}
	return s
}

// notInPath reports what would break the probe's request line.
func notInPath(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }

func probePort(o object, want int64) {
	if v := o.take("port"); v.present() && v.integer(1, maxPort, want) != want {
		v.report("is not the container's port", "remove it")
	}
}

func resources(o object, f *platform.Function) {
	limits := o.take("limits").object()
	f.CPULimitMillis = limit(limits.take("cpu"), quantity.Millis, minCPU, maxCPU, "use 1m to 1024")
	f.MemoryLimit = limit(limits.take("memory"), quantity.Bytes, minMemory, maxMemory, "use 6Mi to 16Ti")
	limits.close()
	// What a scheduler would reserve: here nobody else competes for the machine.
	requests := o.take("requests").object()
	requests.take("cpu").number()
	requests.take("memory").number()
	requests.close()
	o.close()
}

// limit returns a quantity from lo to hi, and 0 if there is none.
func limit(v value, parse func(string) (int64, error), lo, hi int64, fix string) int64 {
	s, ok := v.number()
	if !ok {
		return 0
	}
	n, err := parse(s)
	switch {
	case err != nil:
		v.reportAs(s, err.Error(), fix)
	case n < lo || n > hi:
		v.reportAs(s, "is out of range", fix)
	}
	return n
}
