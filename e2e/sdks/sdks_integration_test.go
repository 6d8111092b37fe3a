//go:build integration

package sdks_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/headstart-mesh/headstart/e2e/sdks"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// deadline is many times what the slowest client takes, on a machine that is busy.
const deadline = 8 * time.Minute

// someCases are for the CLI, which takes a process for each request.
var someCases = []string{"object of 1 KiB", "object of 20 MiB in parts", "metadata", "presigned GET",
	"key of spaces and signs", "sync"}

// Each client gets from the store what is known. It gets the same through a proxy that changes nothing.
func TestClients(t *testing.T) {
	s, env := store(t, "/proc/self/ns/net", porttest.Address(t))
	through := env
	through.Endpoint = proxy(t, s, defect{})
	for _, client := range sdks.Clients {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			env, through := env, through
			if client == sdks.CLI {
				env.Only, through.Only = someCases, someCases
			}
			direct := run(t, client, env)
			none(t, sdks.Check(direct))
			none(t, sdks.Compare(only(direct, through.Only), run(t, client, through)))
		})
	}
}

// Each client asks for credentials where the environment says.
func TestCredentials(t *testing.T) {
	s, env := store(t, "/proc/self/ns/net", porttest.Address(t))
	env.Access, env.Secret, env.Only = "", "", []string{"object of 1 KiB", "object of 20 MiB in parts"}
	env.CredentialsURI, env.Token = credentials(t, s.Secret)
	for _, client := range sdks.Clients {
		none(t, sdks.Check(run(t, client, env)))
	}
	env.Token = "another's"
	for name, result := range run(t, sdks.Go, env) {
		if result.Error == "" {
			t.Errorf("%s: without credentials the client got %v", name, result.Got)
		}
	}
}

// Over TLS clients send bodies in chunks, with the checksum in a trailer.
func TestTLS(t *testing.T) {
	s, env := store(t, "/proc/self/ns/net", porttest.Address(t))
	var trailers atomic.Int32
	server := httptest.NewTLSServer(handler(t, s, defect{handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Trailer") != "" {
				trailers.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}}))
	defer server.Close()
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(certificate, block, 0o600); err != nil {
		t.Fatal(err)
	}
	env.Endpoint = server.URL
	env.Variables = []string{"AWS_CA_BUNDLE=" + certificate, "NODE_EXTRA_CA_CERTS=" + certificate}
	env.Only = []string{"object of 1 KiB", "object of 20 MiB in parts", "stream that cannot seek", "default checksum",
		"wrong checksum", "body in chunks with a trailer"}
	env.Skip = nil // the proxy uses a connection for each request
	for _, client := range sdks.Clients {
		trailers.Store(0)
		none(t, sdks.Check(run(t, client, env)))
		if trailers.Load() == 0 {
			t.Errorf("%s sent no trailer", client)
		}
	}
}

// namespace makes a network namespace with a loopback, and returns its path.
func namespace(t *testing.T) string {
	t.Helper()
	var ns netns.NsHandle
	if err := nsthread.Run("", func() (err error) {
		if ns, err = netns.New(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns))
}

func TestInANetworkNamespace(t *testing.T) {
	path := namespace(t)
	_, env := store(t, path, "127.0.0.1:9000")
	env.Only = []string{"object of 1 KiB", "presigned GET", "overwritten by another client"}
	for name, result := range run(t, sdks.Go, env) {
		if result.Error == "" {
			t.Errorf("%s: outside of the namespace the client got %v", name, result.Got)
		}
	}
	env.Command = func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + path, "--", name}, args...)...)
	}
	for _, client := range sdks.Clients {
		none(t, sdks.Check(run(t, client, env)))
	}
}

// The cases that cannot run with versitygw pass with a server that reads what it refuses, and each body to its end.
func TestNotWithVersitygw(t *testing.T) {
	s, env := store(t, "/proc/self/ns/net", porttest.Address(t))
	env.Endpoint = proxy(t, s, defect{handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "" {
				next.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // what is missing shows in what the client gets
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, "<Error><Code>PreconditionFailed</Code></Error>") // the same
		})
	}})
	env.Only, env.Skip = slices.Collect(maps.Keys(sdks.NotWithVersitygw)), nil
	for _, client := range sdks.Clients {
		none(t, sdks.Check(run(t, client, env)))
	}
}

// Each SDK notices each defect, and is content with the case "the bucket", which none of them touches.
func TestBrokenProxies(t *testing.T) {
	s, env := store(t, "/proc/self/ns/net", porttest.Address(t))
	for _, client := range []sdks.Client{sdks.Boto3, sdks.JS, sdks.Go} {
		all := run(t, client, env)
		for name, d := range defects {
			if slices.Contains(d.except, client) {
				continue
			}
			t.Run(string(client)+" "+name, func(t *testing.T) {
				t.Parallel()
				through := env
				through.Only, through.Endpoint = append([]string{"the bucket"}, d.cases...), proxy(t, s, d)
				var found []string
				for _, difference := range sdks.Compare(only(all, through.Only), run(t, client, through)) {
					found = append(found, difference.Case)
				}
				slices.Sort(found)
				if want := slices.Sorted(slices.Values(d.cases)); !slices.Equal(found, want) {
					t.Errorf("found in %q, want %q", found, want)
				}
			})
		}
	}
}

// only are the results of these cases, or all if none are given.
func only(results sdks.Results, cases []string) sdks.Results {
	if cases == nil {
		return results
	}
	some := sdks.Results{}
	for _, name := range cases {
		some[name] = results[name]
	}
	return some
}

func none(t *testing.T, found []sdks.Difference) {
	t.Helper()
	for _, d := range found {
		t.Error(d)
	}
}

func run(t *testing.T, client sdks.Client, env sdks.Env) sdks.Results {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	start := time.Now()
	results, err := sdks.Run(ctx, client, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d cases in %s", client, len(results), time.Since(start).Round(time.Millisecond))
	return results
}

// store starts an S3 server.
func store(t *testing.T, namespace, address string) (*testbed.S3, sdks.Env) {
	t.Helper()
	bin, dir := filepath.Dir(programtest.Path(t, "versitygw")), t.TempDir()
	s, err := testbed.StartS3(t.Context(), testbed.S3Config{BinDir: bin, DataDir: dir + "/data", LogFile: dir + "/log",
		Namespace: namespace, Address: netip.MustParseAddrPort(address), Secret: testbed.NewSecret()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) }) // t.Context has ended
	return s, sdks.Env{Endpoint: s.Endpoint, Region: testbed.Region, Bucket: testbed.Bucket, Access: s.Secret.Access,
		Secret: s.Secret.Key, BinDir: bin, Direct: s.Put, Skip: sdks.NotWithVersitygw}
}

// credentials serves a key as the agent of a platform does.
func credentials(t *testing.T, secret testbed.Secret) (uri, token string) {
	token = "token-of-this-test"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != token {
			http.Error(w, "not for you", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{ // what is missing shows in what the client gets
			"AccessKeyId": secret.Access, "SecretAccessKey": secret.Key, "Token": "",
			"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	t.Cleanup(server.Close)
	return server.URL, token
}
