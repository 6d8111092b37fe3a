package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

func TestStatusText(t *testing.T) {
	var out bytes.Buffer
	s := city()
	if err := printStatus(&out, s, s.Functions[1].Events[0].Last.Add(90*time.Second)); err != nil {
		t.Fatal(err)
	}
	const want = `NODE                     GATEWAY                   INSTANCES   VERSION
edge                     http://10.201.0.11:8080   2           v1.2.3
cloud-with-a-long-name   http://10.201.0.12:8080   0           v1

FUNCTION       HOST                           STATE                             INPUT
city/flood     flood.city.headstart.local     deleting, stopping on edge        -
default/fire   fire.default.headstart.local   ready on edge, stopping on edge   s3://{header.x-bucket}/{header.x-key}
default/idle   idle.default.headstart.local   cold                              -

FUNCTION       AGO     TIMES   NODE   EVENT
default/fire   1m30s   3       edge   InputNotFound: no object �[2J in videos
default/fire   0s      1       -      ReadyTimeout: not ready within 1m0s [headstart.dev/ready-timeout]

To call a function, name its host to any gateway:
  curl -H 'Host: fire.default.headstart.local' -H 'x-bucket: VALUE' -H 'x-key: VALUE' http://10.201.0.11:8080/
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	stdout, _, err := headstart(t, "", "status", "--run-dir", serve(t, &backend{status: s}))
	if err != nil || !strings.HasPrefix(stdout, want[:strings.Index(want, "AGO")]) {
		t.Errorf("%v, printed:\n%s", err, stdout)
	}
}

// The curl line is one that works once the values are filled in.
func TestCurlOptions(t *testing.T) {
	for input, want := range map[string]string{
		"":                         "-H 'Host: fire.default'",
		"s3://videos/one":          "-H 'Host: fire.default'",
		"redis://a/{header.x-key}": "-H 'Host: fire.default' -H 'x-key: VALUE'",
		"s3://{header.x-bucket}/{header.x-key}/{header.x-key}":       "-H 'Host: fire.default' -H 'x-bucket: VALUE' -H 'x-key: VALUE'",
		"s3://{header.x-bucket}/{query.key|urldecode}/{query.frame}": "-H 'Host: fire.default' -H 'x-bucket: VALUE' -G --data-urlencode 'key=VALUE' --data-urlencode 'frame=VALUE'",
		"body": "-H 'Host: fire.default' --data-binary @FILE",
	} {
		if got := curlOptions(admin.Function{Hosts: []string{"fire.default"}, Input: input}); got != want {
			t.Errorf("%q: %s, want %s", input, got, want)
		}
	}
	named := admin.Function{Hosts: []string{"fire.default"}, Input: "s3://videos/{header.x-key}",
		Inputs: map[string]string{"mask": "s3://masks/{header.x-key}", "text": "s3://text/{query.lang}"}}
	const want = "-H 'Host: fire.default' -H 'x-key: VALUE' -G --data-urlencode 'lang=VALUE'"
	if got := curlOptions(named); got != want {
		t.Errorf("with named inputs: %s, want %s", got, want)
	}
	const shown = "s3://videos/{header.x-key}, mask: s3://masks/{header.x-key}, text: s3://text/{query.lang}"
	if got := inputs(named); got != shown {
		t.Errorf("they are shown as %q", got)
	}
	named.Observed = true
	if got := inputs(named); got != shown+" (observed)" {
		t.Errorf("observed ones are shown as %q", got)
	}
}

func TestStatusShowsConnections(t *testing.T) {
	var out bytes.Buffer
	s := admin.Status{Functions: []admin.Function{{Name: "shop/cart", Connections: []string{"orders", "sessions"}}, {Name: "shop/other"}}}
	if err := printStatus(&out, s, time.Now()); err != nil || !strings.HasSuffix(out.String(), "\nFUNCTION    CONNECTIONS\nshop/cart   orders, sessions\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestStatusOfAnEmptyPlatform(t *testing.T) {
	for want, s := range map[string]admin.Status{
		"No node is connected; the log of headstart-node says why.\n\nNo functions; deploy one by `headstart apply -f service.yaml`.\n": {},
		"NODE   GATEWAY           INSTANCES   VERSION\nedge   http://10.0.0.1   0           v1\n\nNo functions; deploy one by `headstart apply -f service.yaml`.\n": {
			Nodes: []admin.Node{{Name: "edge", Gateway: "http://10.0.0.1", Version: "v1"}}},
		"No node is connected; the log of headstart-node says why.\n\nFUNCTION       HOST   STATE   INPUT\ndefault/fire   -      cold    -\n": {
			Functions: []admin.Function{{Name: "default/fire"}}},
		"No node is connected; the log of headstart-node says why.\n\nFUNCTION      HOST   STATE            INPUT\ndefault/buy   -      workflow 1.2.0   -\n": {
			Functions: []admin.Function{{Name: "default/buy", Workflow: "1.2.0"}}},
	} {
		var out bytes.Buffer
		if err := printStatus(&out, s, time.Now()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Error(d)
		}
	}
}

func TestStatusShowsSites(t *testing.T) {
	rows := siteRows([]admin.Node{{Name: "a", Site: "0011"}, {Name: "b"}, {Name: "c", Site: "2233"}, {Name: "d", Site: "0011"}})
	if d := cmp.Diff([][]string{{"0011", "a, d"}, {"2233", "c"}}, rows); d != "" {
		t.Error(d)
	}
}

func TestStatusJSON(t *testing.T) {
	want := city()
	stdout, _, err := headstart(t, "", "status", "-o", "json", "--run-dir", serve(t, &backend{status: want}))
	if err != nil {
		t.Fatal(err)
	}
	var got admin.Status
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
		t.Error(d)
	}
}

// Scripts read these names.
func TestStatusJSONNames(t *testing.T) {
	s := city()
	s.Nodes, s.Functions = s.Nodes[:1], s.Functions[1:2]
	s.Functions[0].Instances = s.Functions[0].Instances[:1]
	at := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	s.Functions[0].Events = s.Functions[0].Events[1:]
	s.Functions[0].Events[0].First, s.Functions[0].Events[0].Last = at, at
	expect(t, `{
  "version": "v1",
  "nodes": [
    {
      "name": "edge",
      "version": "v1.2.3",
      "gateway": "http://10.201.0.11:8080",
      "instances": 2
    }
  ],
  "functions": [
    {
      "name": "default/fire",
      "hosts": [
        "fire.default.headstart.local"
      ],
      "image": "fire:1",
      "input": "s3://{header.x-bucket}/{header.x-key}",
      "instances": [
        {
          "id": "fire-1",
          "node": "edge",
          "phase": "Ready",
          "address": "10.1.0.2:8080"
        }
      ],
      "events": [
        {
          "reason": "ReadyTimeout",
          "message": "not ready within 1m0s",
          "field": "headstart.dev/ready-timeout",
          "count": 1,
          "first": "2026-11-20T18:00:00Z",
          "last": "2026-11-20T18:00:00Z"
        }
      ]
    }
  ]
}
`, "status", "-o", "json", "--run-dir", serve(t, &backend{status: s}))
}

// Below the nodes is what is wrong with them, and what to do about it.
func TestStatusOfNodesWithProblems(t *testing.T) {
	var out bytes.Buffer
	s := admin.Status{Nodes: []admin.Node{{Name: "edge", Version: "v1", Problems: []admin.NodeProblem{{Message: "2 daemons\x1b[2J", Fix: "stop one"}}}, {Name: "cloud", Version: "v1"}}}
	if err := printStatus(&out, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	const want = `NODE    GATEWAY   INSTANCES   VERSION
edge    -         0           v1
cloud   -         0           v1

NODE   PROBLEM         FIX
edge   2 daemons�[2J   stop one

`
	if !strings.HasPrefix(out.String(), want) {
		t.Error(cmp.Diff(want, out.String()))
	}
}

// Of several control planes it is said which there are.
func TestStatusOfSeveralControlPlanes(t *testing.T) {
	var out bytes.Buffer
	s := admin.Status{Platform: admin.Kubernetes, Nodes: []admin.Node{{Name: "edge", Version: "v1"}},
		ControlPlanes: []admin.ControlPlane{{Name: "cp-a", InCharge: true, Nodes: 1, Version: "v1"}, {Name: "cp-b", Problem: "it does not answer"}}}
	if err := printStatus(&out, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	const want = `CONTROL PLANE   IN CHARGE   NODES   VERSION   PROBLEM
cp-a            yes         1       v1        -
cp-b            -           0       -         it does not answer

NODE   GATEWAY   INSTANCES   VERSION
`
	if !strings.HasPrefix(out.String(), want) {
		t.Error(out.String())
	}
	out.Reset()
	s.ControlPlanes = s.ControlPlanes[:1]
	if err := printStatus(&out, s, time.Now()); err != nil || !strings.HasPrefix(out.String(), "NODE") {
		t.Errorf("%v, of one:\n%s", err, out.String())
	}
}
