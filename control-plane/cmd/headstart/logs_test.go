package main

import (
	"errors"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
)

func TestLogs(t *testing.T) {
	b := &backend{status: admin.Status{Nodes: []admin.Node{{Name: "edge"}}}, lines: []admin.LogLine{{Node: "edge", Line: "\x1b[31mone"}, {Node: "edge", Line: ""}}}
	dir := serve(t, b)
	// What goes to a file is what the function has written.
	expect(t, "\x1b[31mone\n\n", "logs", "fire", "--run-dir", dir)
	if b.asked != (admin.LogOptions{Function: "default/fire", Tail: -1}) {
		t.Errorf("asked for %+v", b.asked)
	}
	expect(t, `{"node":"edge","line":"\u001b[31mone"}`+"\n"+`{"node":"edge","line":""}`+"\n", "logs", "city/fire", "-f", "--tail", "2", "-o", "json", "--run-dir", dir)
	if b.asked != (admin.LogOptions{Function: "city/fire", Tail: 2, Follow: true}) {
		t.Errorf("asked for %+v", b.asked)
	}
	b.status.Nodes = append(b.status.Nodes, admin.Node{Name: "cloud"})
	expect(t, "[edge] \x1b[31mone\n[edge] \n", "logs", "fire", "--run-dir", dir)

	ends := serve(t, &backend{lines: b.lines, err: errors.New("the end")})
	if _, _, err := headstart(t, "", "logs", "-f", "fire", "--run-dir", ends); err == nil || err.Error() != "the log breaks off here: the platform was stopped, or its control plane started again" {
		t.Errorf("of a platform that ends: %v", err)
	}
	stdout, stderr, err := headstart(t, "", "logs", "fire", "--run-dir", serve(t, &backend{}))
	if err != nil || stdout != "" || stderr != "default/fire has written nothing to its output.\n" {
		t.Errorf("without any: %v, %q, %q", err, stdout, stderr)
	}
	unknown := serve(t, &backend{
		err: &platform.Refusal{Status: 404, Reason: "FunctionUnknown", Message: "no such function"},
	})
	expectError(t, "no such function", "logs", "ice", "--run-dir", unknown)
}

// On a cluster kubectl has the logs.
func TestLogsOnACluster(t *testing.T) {
	config := kubeconfig(t, &backend{status: admin.Status{Platform: admin.Kubernetes, Functions: []admin.Function{
		{Name: "city/fire", Workload: "Deployment fire-v1", Scaler: "Headstart"}, {Name: "city/ice", Scaler: "Knative"}}}})
	expectError(t, "on Kubernetes kubectl has the logs: kubectl logs -n city deployment/fire-v1 -f --tail 5; of a container that has ended, add --previous",
		"logs", "fire", "-n", "city", "-f", "--tail", "5", "--kubeconfig", config)
	expectError(t, "on Kubernetes kubectl has the logs: kubectl logs -n city -l serving.knative.dev/service=ice -c user-container; of a container that has ended, add --previous",
		"logs", "city/ice", "--kubeconfig", config)
	expectError(t, "no such function: default/fire; `headstart status` lists them", "logs", "fire", "--kubeconfig", config)
}
