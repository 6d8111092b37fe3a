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
		"no such service": {[]string{"advise", "--kubeconfig", config}, "--prometheus: asking Prometheus at https://127.0.0.1:"},
		"no right to ask": {[]string{"report", "--kubeconfig", config, "--prometheus", "secret/prometheus:web"}, "Forbidden: /api/v1/namespaces/secret/services/prometheus:web/proxy/"},
		"neither":         {[]string{"report", "--kubeconfig", config, "--prometheus", "prometheus"}, `"prometheus" is neither a URL nor a Service: write it like istio-system/prometheus:9090`},
		"a path in it":    {[]string{"report", "--kubeconfig", config, "--prometheus", "a/b:9090/../../secrets"}, "is neither a URL nor a Service"},
		"nobody there":    {[]string{"report", "--kubeconfig", config, "--prometheus", "http://127.0.0.1:1"}, "connection refused"},
		"no time":         {[]string{"report", "--since", "yesterday"}, `invalid argument "yesterday" for "--since"`},
		"no cluster":      {[]string{"advise", "--kubeconfig", filepath.Join(t.TempDir(), "none")}, "--learned"},
	} {
		stdout, _, err := headstart(t, "", c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || stdout != "" {
			t.Errorf("%s: %v\n%s", name, err, stdout)
		}
	}
}
