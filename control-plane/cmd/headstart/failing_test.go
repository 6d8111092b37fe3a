package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
)

// troubled is a platform where something fails now, and something did long ago.
func troubled(now time.Time) admin.Status {
	s := city()
	s.Nodes[0].Problems = []admin.NodeProblem{{Message: "2 daemons", Fix: "stop one"}}
	s.Parts = []admin.Part{
		{Name: "headstart-controlplane", State: "Running", Since: now.Add(-48 * time.Hour)},
		{Name: "headstart-node-edge", State: "Running", Since: now.Add(-5 * time.Minute), Restarts: 2, LastExit: "signal: killed", ExitedAt: now.Add(-5 * time.Minute)},
		{Name: "gateway-edge", State: "Running", Since: now.Add(-time.Hour), Restarts: 1, LastExit: "exit status 1", ExitedAt: now.Add(-time.Hour)},
		{Name: "containerd-edge", State: "Waiting", Since: now, Restarts: 7, LastExit: "exec: no such file", ExitedAt: now},
	}
	s.Functions[1].Events = []event.Event{
		{Reason: "InputNotFound", Message: "no object", Node: "edge", Count: 3, First: now.Add(-time.Hour), Last: now.Add(-time.Hour)},
		{Reason: "FunctionExited", Message: "the program ended with code 1", Node: "edge", Instance: "fire-1", Count: 1, First: now, Last: now.Add(-time.Minute),
			Log: []string{"Traceback (most recent call last):", "KeyError: '\x1b[2JDB'"}}}
	return s
}

func TestStatusOfOneFunction(t *testing.T) {
	now := time.Now()
	var out bytes.Buffer
	c := cli{}
	s, err := c.only(troubled(now), []string{"fire", "default/fire"})
	if err != nil {
		t.Fatal(err)
	}
	if err := printStatus(&out, s, now); err != nil {
		t.Fatal(err)
	}
	const want = `PROCESS               STATE     FOR      RESTARTS   LAST ENDED
headstart-node-edge   Running   5m0s     2          5m0s ago: signal: killed
gateway-edge          Running   1h0m0s   1          1h0m0s ago: exit status 1
containerd-edge       Waiting   0s       7          0s ago: exec: no such file

NODE                     GATEWAY                   INSTANCES   VERSION
edge                     http://10.201.0.11:8080   2           v1.2.3
cloud-with-a-long-name   http://10.201.0.12:8080   0           v1

NODE   PROBLEM     FIX
edge   2 daemons   stop one

FUNCTION       HOST                           STATE                             INPUT
default/fire   fire.default.headstart.local   ready on edge, stopping on edge   s3://{header.x-bucket}/{header.x-key}

FUNCTION       AGO      TIMES   NODE   EVENT
default/fire   1h0m0s   3       edge   InputNotFound: no object
default/fire   1m0s     1       edge   FunctionExited: the program ended with code 1

default/fire: FunctionExited on edge; the last words:
  │ Traceback (most recent call last):
  │ KeyError: '�[2JDB'

To call a function, name its host to any gateway:
  curl -H 'Host: fire.default.headstart.local' -H 'x-bucket: VALUE' -H 'x-key: VALUE' http://10.201.0.11:8080/
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	dir := serve(t, &backend{status: city()})
	expectError(t, "no such function: city/fire; `headstart status` lists them", "status", "city/fire", "--run-dir", dir)
	stdout, _, err := headstart(t, "", "status", "flood", "-n", "city", "--run-dir", dir)
	if err != nil || !strings.Contains(stdout, "city/flood") || strings.Contains(stdout, "default/fire") {
		t.Errorf("%v, printed:\n%s", err, stdout)
	}
}

func TestStatusOfWhatFails(t *testing.T) {
	now := time.Now()
	stdout, _, err := headstart(t, "", "status", "--failing", "-o", "json", "--run-dir", serve(t, &backend{status: troubled(now)}))
	if err != nil {
		t.Fatal(err)
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, p := range s.Parts {
		parts = append(parts, p.Name)
	}
	if d := cmp.Diff([]string{"headstart-node-edge", "containerd-edge"}, parts); d != "" {
		t.Errorf("processes: %s", d)
	}
	if len(s.Nodes) != 1 || s.Nodes[0].Name != "edge" || len(s.Functions) != 1 || len(s.Functions[0].Events) != 1 || s.Functions[0].Events[0].Reason != "FunctionExited" || len(s.Functions[0].Events[0].Log) != 2 {
		t.Errorf("nodes %+v, functions %+v", s.Nodes, s.Functions)
	}
	calm := city()
	for i := range calm.Functions {
		calm.Functions[i].Events = nil
	}
	expect(t, "Nothing is failing.\n", "status", "--failing", "--run-dir", serve(t, &backend{status: calm}))
	expect(
		t, "No node is connected; the log of headstart-node says why.\n", "status", "--failing", "--run-dir",
		serve(t, &backend{status: admin.Status{}}),
	)
	calm.Functions[1].Events = []event.Event{{
		Reason: "ReadyTimeout", Message: "not ready", Node: "edge", Count: 1, First: now, Last: now,
	}}
	stdout, _, err = headstart(t, "", "status", "--failing", "--run-dir", serve(t, &backend{status: calm}))
	if err != nil || !strings.HasPrefix(stdout, "FUNCTION ") || strings.Contains(stdout, "No node") {
		t.Errorf("of nodes that are well (%v):\n%s", err, stdout)
	}
	calm.Functions[1].Events, calm.Nodes[0].Problems = nil, []admin.NodeProblem{{Message: "2 daemons", Fix: "stop one"}}
	stdout, _, err = headstart(t, "", "status", "--failing", "--run-dir", serve(t, &backend{status: calm}))
	if err != nil || !strings.HasPrefix(stdout, "NODE ") || strings.Contains(stdout, "No functions") {
		t.Errorf("of functions that are well (%v):\n%s", err, stdout)
	}
}
