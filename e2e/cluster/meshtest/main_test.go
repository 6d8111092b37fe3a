//go:build cluster

// Package meshtest holds Headstart to what docs/operations/istio.md says, in a real mesh:
// functions with sidecars under STRICT mutual TLS, AuthorizationPolicies, gateways without
// Headstart, two revisions, and the filter as the gateways' agents pull it.
package meshtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

const (
	// openTimeout is for a machine where nothing runs yet.
	openTimeout = 15 * time.Minute
	// settleTimeout bounds what the cluster does by itself.
	settleTimeout = 2 * time.Minute
	pollInterval  = 50 * time.Millisecond
	// requestTimeout is longer than any cold start here.
	requestTimeout = 40 * time.Second

	witnessImage = "headstart.local/witness:1"
	inputKey     = "meshtest/input"
	// inputSize is such that loads are far from the rate of the link to the store.
	inputSize = 100_000
)

// Namespaces of this package's own; the store's grant names them.
const (
	strict  = "mesh-strict"
	guarded = "mesh-authz"
	plain   = "mesh-plain"
)

// in is the world that all tests share.
var in *world.World

// digest is of the object that functions have as their input.
var digest string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	source, err := filepath.Abs("../../..")
	if err != nil {
		return 0, err
	}
	in, err = world.Open(ctx, world.Config{Source: source, WorkDir: filepath.Join(source, "out/cluster/meshtest"), Reuse: true,
		Progress: func(s string) { fmt.Fprintln(os.Stderr, s) }})
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := in.Close(); err == nil {
			err = e
		}
	}()
	if err := prepare(ctx); err != nil {
		return 0, err
	}
	code = m.Run()
	return code, in.Tool(context.Background(), nil, "kubectl", "delete", "namespace", strict, guarded, plain, "--ignore-not-found", "--timeout=60s")
}

// prepare has Headstart installed, with a store for our namespaces, and makes these.
func prepare(ctx context.Context) error {
	if err := install(ctx); err != nil {
		return err
	}
	archive, err := witness()
	if err != nil {
		return err
	}
	defer os.Remove(archive)
	if err := in.ImportImage(ctx, archive); err != nil {
		return err
	}
	object := make([]byte, inputSize)
	if _, err := rand.Read(object); err != nil {
		return err
	}
	digest = sum(object)
	if err := in.Cloud.S3.Put(ctx, inputKey, bytes.NewReader(object)); err != nil {
		return err
	}
	return in.Apply(ctx, namespaces)
}

const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + strict + `, labels: {istio-injection: enabled}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: ` + strict + `}
spec: {mtls: {mode: STRICT}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ` + guarded + `, labels: {istio-injection: enabled}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: ` + guarded + `}
spec: {mtls: {mode: STRICT}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ` + plain + `}
`

func install(ctx context.Context) error {
	var installed struct {
		Stores []struct{ Namespaces []string }
	}
	values, err := in.Output(ctx, nil, "helm", "get", "values", "headstart", "-n", world.System, "-o", "json")
	stores := "stores=" + in.Stores(world.Functions, strict, guarded, plain)
	servers, invalid := destinations()
	if invalid != nil {
		return invalid
	}
	if err != nil {
		images, err := in.BuildImages(ctx, "mesh")
		if err != nil {
			return err
		}
		if err := in.Apply(ctx, databaseSecret); err != nil {
			return err
		}
		_, err = in.Install(ctx, images, "--set-json", stores, "--set-json", servers)
		return err
	}
	if err := json.Unmarshal([]byte(values), &installed); err != nil {
		return fmt.Errorf("reading the installation's values: %w", err)
	}
	for _, s := range installed.Stores {
		if slices.Contains(s.Namespaces, strict) && slices.Contains(s.Namespaces, guarded) {
			return nil
		}
	}
	if err := in.Apply(ctx, databaseSecret); err != nil {
		return err
	}
	if err := upgrade(ctx, "--set-json", stores, "--set-json", servers); err != nil {
		return err
	}
	// Daemons that run see a changed list when the kubelet has brought their volume up to date, and new ones at once.
	const daemons = "daemonset/headstart-node"
	if err := in.Tool(ctx, nil, "kubectl", "-n", world.System, "rollout", "restart", daemons); err != nil {
		return err
	}
	return in.Tool(ctx, nil, "kubectl", "-n", world.System, "rollout", "status", daemons, "--timeout", "3m")
}

// upgrade changes values of what is installed.
func upgrade(ctx context.Context, values ...string) error {
	return in.Tool(ctx, nil, "helm", append([]string{"upgrade", "headstart", in.Source("manifests/charts/headstart"), "-n", world.System,
		"--reset-then-reuse-values", "--wait", "--timeout", "2m"}, values...)...)
}

func witness() (archive string, err error) {
	f, err := os.CreateTemp("", "witness-*.tar")
	if err != nil {
		return "", err
	}
	err = ociimage.Build(f, ociimage.Image{Ref: witnessImage, Entrypoint: []string{"/witness"}, Env: []string{"PORT=8080"},
		Files: map[string]ociimage.File{"/witness": {Source: in.Source("out/bin/witness"), Mode: 0o755}}})
	if e := f.Close(); err == nil {
		err = e
	}
	return f.Name(), err
}

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(pollInterval):
		}
	}
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if err := in.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

// kubectl returns what it printed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := in.Output(t.Context(), nil, "kubectl", args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func sum(object []byte) string { return fmt.Sprintf("%x", sha256.Sum256(object)) }
