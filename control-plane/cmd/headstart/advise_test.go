package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestWhereToAskForThePast(t *testing.T) {
	config := kubeconfig(t, &backend{})
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such service":  {[]string{"advise", "--kubeconfig", config}, "--prometheus: asking Prometheus at https://127.0.0.1:"},
		"no right to ask":  {[]string{"report", "--kubeconfig", config, "--prometheus", "secret/prometheus:web"}, "Forbidden: /api/v1/namespaces/secret/services/prometheus:web/proxy/"},
		"neither":          {[]string{"report", "--kubeconfig", config, "--prometheus", "prometheus"}, `"prometheus" is neither a URL nor a Service: write it like istio-system/prometheus:9090`},
		"a path in it":     {[]string{"report", "--kubeconfig", config, "--prometheus", "a/b:9090/../../secrets"}, "is neither a URL nor a Service"},
		"nobody there":     {[]string{"report", "--kubeconfig", config, "--prometheus", "http://127.0.0.1:1"}, "connection refused"},
		"TLS, with a path": {[]string{"report", "--kubeconfig", config, "--prometheus", "secret/https:prometheus:web/prom"}, "Forbidden: /api/v1/namespaces/secret/services/https:prometheus:web/proxy/prom/api/v1/query"},
		"a short time":     {[]string{"advise", "--kubeconfig", config, "--since", "30s"}, "--since: 30s is too short: look back for 2m0s at least"},
		"no bandwidth":     {[]string{"advise", "--kubeconfig", config, "--client-bandwidth", "0"}, "--client-bandwidth is more than 0 Mbit/s"},
		"worth nothing":    {[]string{"advise", "--kubeconfig", config, "--worth", "NaN"}, "--worth at least 0 seconds"},
		"a node":           {[]string{"advise", "--kubeconfig", config, "--node", "a"}, "--node: services are not of a node"},
		"two questions":    {[]string{"advise", "--kubeconfig", config, "--learned", "--since", "1h"}, "[learned since] were all set"},
		"no time":          {[]string{"report", "--since", "yesterday"}, `invalid argument "yesterday" for "--since"`},
		"no cluster":       {[]string{"advise", "--kubeconfig", filepath.Join(t.TempDir(), "none")}, "--learned"},
	} {
		stdout, _, err := headstart(t, "", c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || stdout != "" {
			t.Errorf("%s: %v\n%s", name, err, stdout)
		}
	}
}
