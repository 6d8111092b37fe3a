package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// complete are the flags that a node cannot do without.
var complete = []string{"--control-plane", "10.201.0.1:7443", "--cert", "c.pem", "--key", "k.pem", "--ca", "ca.pem",
	"--pod-subnet", "10.201.1.0/24", "--peer-listen", "10.201.0.11:7443"}

// onKubernetes are those of one on Kubernetes.
var onKubernetes = []string{"--platform", "kubernetes", "--control-plane", "headstart-controlplane:7443", "--ca", "ca.pem",
	"--node-name", "edge-1", "--identity", "headstart-controlplane:7444", "--peer-listen", "10.244.1.7:9461"}

// execute runs the command line, and says whether the node would have started.
func execute(t *testing.T, args ...string) (started bool, err error) {
	t.Helper()
	t.Setenv("NODE_NAME", "")
	t.Setenv("POD_IP", "")
	cmd := command(func(context.Context, config) error { started = true; return nil })
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	return started, cmd.ExecuteContext(t.Context())
}

func TestTheFlagsMakeSense(t *testing.T) {
	for _, flags := range [][]string{complete, onKubernetes, append(onKubernetes, "--mesh-ca", "istiod.istio-system:15012", "--gateway-uid", "1337")} {
		if started, err := execute(t, flags...); !started || err != nil {
			t.Errorf("it started: %v, %v", started, err)
		}
	}
}

// A wrong flag is named, with what it should be; nothing has begun by then.
func TestWrongFlagsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"none":             {nil, []string{"ca", "cert", "control-plane", "key", "peer-listen", "pod-subnet"}},
		"none, kubernetes": {[]string{"--platform", "kubernetes"}, []string{"ca", "control-plane", "identity", "node-name", "peer-listen"}},
		"platform":         {append(complete, "--platform", "nomad"), []string{`--platform "nomad"`, "local or kubernetes"}},
		"not local":        {append(complete, "--gateway-uid", "1337"), []string{"--gateway-uid", "--platform local"}},
		"not kubernetes":   {append(onKubernetes, "--cert", "c.pem"), []string{"--cert", "--platform kubernetes"}},
		"mesh":             {append(onKubernetes, "--mesh-ca", "istiod"), []string{`--mesh-ca "istiod"`}},
		"mesh, no token":   {append(onKubernetes, "--mesh-ca", "istiod:15012", "--mesh-token", ""), []string{"--mesh-token"}},
		"argument":         {append(complete, "extra"), []string{"extra"}},
		"unknown":          {append(complete, "--pod-subnets", "x"), []string{"--pod-subnets"}},
		"level":            {append(complete, "--log-level", "loud"), []string{`--log-level "loud"`, "debug"}},
		"subnet":           {append(complete, "--pod-subnet", "10.201.1.0"), []string{`--pod-subnet "10.201.1.0"`, "/24"}},
		"peer":             {append(complete, "--peer-listen", "edge-1:7443"), []string{`--peer-listen "edge-1:7443"`, "ip:port"}},
		"peer, anywhere":   {append(complete, "--peer-listen", "0.0.0.0:7443"), []string{`--peer-listen "0.0.0.0:7443"`}},
		"peer, any port":   {append(complete, "--peer-listen", "10.0.0.1:0"), []string{`--peer-listen "10.0.0.1:0"`}},
		"peer, bare IPv6":  {append(onKubernetes, "--peer-listen", "fd00::b:9461"), []string{`--peer-listen "fd00::b:9461"`, "[fd00::b]:7443"}},
		"peer, no pod":     {append(onKubernetes, "--peer-listen", ":9461"), []string{`--peer-listen ":9461"`}},
		"peer, local":      {append(complete, "--peer-listen", ":9461"), []string{`--peer-listen ":9461"`}},
		"pod":              {append(onKubernetes, "--peer-listen", ":9461", "--pod-ip", "edge-1"), []string{`--peer-listen "edge-1:9461"`}},
		"control plane":    {append(complete, "--control-plane", "10.201.0.1"), []string{`--control-plane "10.201.0.1"`, "host:port"}},
		"one of several":   {append(complete, "--control-plane", "10.201.0.1:7443,10.201.0.2"), []string{`--control-plane "10.201.0.2"`, "host:port"}},
		"any":              {append(complete, "--control-plane-any", "10.201.0.1"), []string{`--control-plane-any "10.201.0.1"`, "host:port"}},
		"metrics":          {append(complete, "--metrics-listen", "9464"), []string{`--metrics-listen "9464"`}},
		"limit":            {append(complete, "--buffer-limit", "0"), []string{`--buffer-limit "0"`}},
		"memory":           {append(complete, "--buffer-memory", "-1"), []string{`--buffer-memory "-1"`, "0 for none"}},
		"quota":            {append(complete, "--buffer-quota", "-1", "--buffer-quota-inputs", "0"), []string{`--buffer-quota "-1"`, `--buffer-quota-inputs "0"`}},
		"redis":            {append(complete, "--buffer-redis", "redis.example.com:6379"), []string{"--buffer-redis", "redis://host:port/db"}},
		"redis, secret":    {append(complete, "--buffer-redis", "redis://:pass@h"), []string{"--buffer-redis-secret"}},
		"redis, limit":     {append(complete, "--buffer-redis", "redis://h", "--buffer-redis-limit", "0"), []string{`--buffer-redis-limit "0"`}},
		"directories":      {append(complete, "--state-dir", "state", "--run-dir", ""), []string{`--state-dir "state"`, `--run-dir ""`, "absolute"}},
	} {
		t.Run(name, func(t *testing.T) {
			started, err := execute(t, c.args...)
			if started || err == nil {
				t.Fatalf("it started: %v, %v", started, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %s: %v", want, err)
				}
			}
		})
	}
}

func TestTheLogHasItsLevel(t *testing.T) {
	log, err := config{logLevel: "warn"}.logger()
	if err != nil || log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) {
		t.Errorf("the logger is %v, %v", log, err)
	}
}

// The chart says the port only: the kubelet tells a pod its address without brackets.
func TestAPodsAddressMayBeOfIPv6(t *testing.T) {
	for name, c := range map[string]struct{ env, listen, flag, want string }{
		"IPv4":     {"10.244.1.7", ":9461", "", "10.244.1.7:9461"},
		"IPv6":     {"fd00:10:244::7", ":9461", "", "[fd00:10:244::7]:9461"},
		"by flag":  {"10.244.1.7", ":9461", "fd00::7", "[fd00::7]:9461"},
		"in whole": {"fd00::7", "10.244.1.7:9461", "", "10.244.1.7:9461"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_IP", c.env)
			args := append(onKubernetes, "--peer-listen", c.listen)
			if c.flag != "" {
				args = append(args, "--pod-ip", c.flag)
			}
			var got string
			cmd := command(func(_ context.Context, c config) error { got = c.peerListen; return nil })
			cmd.SetArgs(args)
			if err := cmd.ExecuteContext(t.Context()); err != nil || got != c.want {
				t.Errorf("listens on %q, %v; want %q", got, err, c.want)
			}
		})
	}
}
