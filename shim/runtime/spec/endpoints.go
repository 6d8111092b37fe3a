package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// S3 is the name of the endpoint by which a program finds a store.
const S3 = "s3"

// HostNetwork is why a container of the node's own network gets no endpoint: all of the node could connect there.
const HostNetwork = "hostNetwork"

// Output is where a container has the directory of its outputs, and outputVariable names it.
const (
	Output         = Root + "output"
	outputVariable = "HEADSTART_OUTPUT_DIR"
)

// address stands for host and port in an endpoint's variables.
const address = "{address}"

// kind is what an endpoint can be.
type kind struct {
	// sets are variables that only a container without any of own gets, and offers those that it gets if it has none of
	// them: one may be for other services as well.
	sets, offers []string
	// own are variables of containers that have their own way to the same: they are left alone.
	own []string
}

// kinds are the endpoints that there are. The daemon can set nothing else in a program's environment.
var kinds = map[string]kind{S3: {
	sets:   []string{"AWS_ENDPOINT_URL_S3", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"},
	offers: []string{"AWS_REGION", "AWS_DEFAULT_REGION"},
	own: []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
}}

// proxies are variables by which programs send requests to a proxy, which does not know the sandbox's loopback, and
// direct those that keep requests from it. Programs look at them in upper or in lower case.
var (
	proxies = []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}
	direct  = []string{"NO_PROXY", "no_proxy"}
)

// left returns why a container goes without endpoints, by their names.
func left(spec object, network string) (map[string]string, error) {
	env, err := variables(spec)
	if err != nil {
		return nil, err
	}
	why := map[string]string{}
	for name, k := range kinds {
		has := slices.IndexFunc(k.own, func(v string) bool { return env[v] != "" })
		switch {
		case has >= 0:
			why[name] = k.own[has]
		case network == "":
			why[name] = HostNetwork
		}
	}
	return why, nil
}

// variables are the environment of a specification's process. Of one that is there twice the last one counts, as in
// programs.
func variables(spec object) (map[string]string, error) {
	var process object
	if err := member(spec, "process", &process); err != nil {
		return nil, err
	}
	var all []string
	if err := member(process, "env", &all); err != nil {
		return nil, err
	}
	env := make(map[string]string, len(all))
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env, nil
}

// CheckEndpoints allows the endpoints that the container's annotations ask for, each once. The shim listens for no
// others.
func (f Facts) CheckEndpoints(all []*nodeapi.Endpoint) error {
	seen := map[string]bool{}
	for _, e := range all {
		switch name := e.GetName(); {
		case name != S3 || f.S3 == "":
			return fmt.Errorf("endpoint %.100q: the container does not ask for it", name)
		case seen[name]:
			return fmt.Errorf("endpoint %.100q: named twice", name)
		}
		seen[e.GetName()] = true
	}
	return nil
}

// checkEndpoint allows what the kinds say. Its errors do not repeat values: one is a secret.
func (sb Sandbox) checkEndpoint(e *nodeapi.Endpoint) error {
	k, known := kinds[e.GetName()]
	if !known {
		return errors.New("not an endpoint that this shim knows")
	}
	if sb.Endpoints[e.GetName()] == "" {
		return errors.New("nobody listens there")
	}
	for name, value := range e.GetEnv() {
		if !slices.Contains(k.sets, name) && !slices.Contains(k.offers, name) {
			return fmt.Errorf("environment variable %.100q: not one of the endpoint's", name)
		}
		if err := checkValue(value); err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
	}
	return nil
}

// withEndpoints adds to env what tells a program of endpoints.
func (sb Sandbox) withEndpoints(spec object, env map[string]string, all []*nodeapi.Endpoint) error {
	if len(all) == 0 {
		return nil
	}
	has, err := variables(spec)
	if err != nil {
		return err
	}
	for _, e := range all {
		at, offers := sb.Endpoints[e.GetName()], kinds[e.GetName()].offers
		own := slices.ContainsFunc(offers, func(v string) bool { return has[v] != "" && has[v] != e.GetEnv()[v] })
		for name, value := range e.GetEnv() {
			if !own || !slices.Contains(offers, name) {
				env[name] = strings.ReplaceAll(value, address, at)
			}
		}
		if slices.ContainsFunc(proxies, func(v string) bool { return has[v] != "" }) {
			host, _, _ := strings.Cut(at, ":")
			for i, name := range direct {
				// A program that looks at this one first would not see the other one any more.
				env[name] = withHost(cmp.Or(has[name], has[direct[1-i]]), host)
			}
		}
	}
	return nil
}

// withHost adds a host to a list with commas between. Some programs take * for all hosts only if it is alone.
func withHost(list, host string) string {
	switch {
	case list == "*", slices.Contains(strings.Split(list, ","), host):
		return list
	case list == "":
		return host
	}
	return list + "," + host
}
