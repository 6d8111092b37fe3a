package knative

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// variable is an environment variable's name as Kubernetes has always allowed it.
var variable = regexp.MustCompile(`^[A-Za-z_.-][A-Za-z0-9_.-]{0,255}$`)

// The variables of the Knative runtime contract, which the platform sets.
const (
	envPort          = "PORT"
	envService       = "K_SERVICE"
	envRevision      = "K_REVISION"
	envConfiguration = "K_CONFIGURATION"
	// nodePrefix starts the variables that the node sets, such as where inputs lie.
	nodePrefix = "HEADSTART_"
)

// firstRevision is how Knative names the first revision of a service. The embedded
// platform keeps one revision at a time.
const firstRevision = "-00001"

func reserved(name string) bool {
	switch name {
	case envPort, envService, envRevision, envConfiguration:
		return true
	}
	return strings.HasPrefix(name, nodePrefix)
}

// setRuntimeEnv adds the variables of the runtime contract.
func setRuntimeEnv(f *platform.Function, name string) {
	if f.Env == nil {
		f.Env = map[string]string{}
	}
	f.Env[envPort] = strconv.Itoa(int(f.Port))
	f.Env[envService] = name
	f.Env[envRevision] = name + firstRevision
	f.Env[envConfiguration] = name
}

// environment returns the container's variables. No message repeats a value: people put
// secrets there.
func environment(v value) map[string]string {
	env := map[string]string{}
	var values []value
	for _, item := range v.list(maxItems) {
		o := item.object()
		name := o.must("name", "name the variable")
		o.refuse("valueFrom", "write the value out or run on Kubernetes")
		content := o.take("value")
		o.close()
		if !name.present() {
			continue
		}
		s, ok := name.tryText()
		if !ok {
			continue
		}
		if _, twice := env[s]; twice {
			name.reportAs(s, "is given twice", "remove one of them")
		}
		switch {
		case !variable.MatchString(s):
			name.reportAs(s, "is not a variable's name", "use letters, digits, _, . and -, and no digit first")
		case reserved(s):
			name.reportAs(s, "is set by the platform", "remove it")
		}
		env[s] = content.text()
		values = append(values, content)
	}
	for _, content := range values {
		refuseExpansion(content, env)
	}
	return env
}

// expansion is what Kubernetes replaces in values and arguments: $(NAME) where NAME is
// a variable of the container, and $$.
var expansion = regexp.MustCompile(`\$\$|\$\(([A-Za-z0-9_.-]+)\)`)

// refuseExpansion refuses text that a cluster would change on the way to the program.
func refuseExpansion(v value, env map[string]string) {
	if !v.present() {
		return
	}
	for _, match := range expansion.FindAllStringSubmatch(v.node.Value, -1) {
		_, known := env[match[1]]
		if match[0] == "$$" || known || reserved(match[1]) {
			v.report("holds "+match[0]+", which Kubernetes expands: "+unsupported, "write the value out")
			return
		}
	}
}
