//go:build cluster

package meshtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// filter is one that the gateway's Envoy has discovered: where its module is, and its
// configuration.
type filter struct{ name, module, config string }

// filters returns those that are Wasm; others stand in for one that is not there.
func filters(ctx context.Context, gateway pod) (found []filter, err error) {
	dump, err := gateway.admin(ctx, "/config_dump?resource=ecds_filters")
	if err != nil {
		return nil, err
	}
	var all struct {
		Configs []struct {
			ECDSFilter struct {
				Name        string
				TypedConfig struct {
					Config struct {
						VMConfig struct {
							Code struct {
								Local struct{ Filename string }
							}
						} `json:"vm_config"`
						Configuration struct{ Value string }
					}
				} `json:"typed_config"`
			} `json:"ecds_filter"`
		}
	}
	if err := json.Unmarshal([]byte(dump), &all); err != nil {
		return nil, fmt.Errorf("%w: %.200s", err, dump)
	}
	for _, f := range all.Configs {
		config := f.ECDSFilter.TypedConfig.Config
		if config.VMConfig.Code.Local.Filename != "" {
			found = append(found, filter{f.ECDSFilter.Name, config.VMConfig.Code.Local.Filename, config.Configuration.Value})
		}
	}
	return found, nil
}

// loaded asks whether the gateway's Envoy has the filter, as it was pulled and with its configuration.
func loaded(gateway pod, digest string) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := filters(ctx, gateway)
		for _, f := range all {
			if strings.Contains(f.name, "headstart-prefetch") && strings.Contains(f.module, digest) && strings.Contains(f.config, "headstart-hints") {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("no filter of %s: %.600q", digest, all))
	}
}

// templated asks whether the gateway's Envoy has the template of a function's input, where the filter reads
// it: in the metadata of the function's cluster.
func templated(gateway pod, s service, input string) func(context.Context) error {
	return func(ctx context.Context) error {
		dump, err := gateway.admin(ctx, "/config_dump?resource=dynamic_active_clusters&name_regex="+
			url.QueryEscape(`outbound\|[0-9]+\|\|`+s.name+`\.`+s.namespace+`\.svc\.cluster\.local`))
		if err == nil && !strings.Contains(dump, `\"input\":\"`+input+`\"`) {
			err = fmt.Errorf("the cluster has no input %s: %.2000s", input, dump)
		}
		return err
	}
}

// digestOf is that of an OCI URL.
func digestOf(t *testing.T, url string) string {
	t.Helper()
	_, digest, ok := strings.Cut(url, "@sha256:")
	if !ok || !strings.HasPrefix(url, "oci://") {
		t.Fatalf("%q is not an image by digest", url)
	}
	return digest
}

func TestTheFilterIsPulledByDigest(t *testing.T) {
	gateway := ingressGateway(t)
	// Without a route there is no listener, and nothing that needs the filter.
	deploy(t, gateway, service{name: "pulled", namespace: strict, function: true, replicas: 1})
	image := kubectl(t, "-n", "istio-system", "get", "trafficextension", "headstart-prefetch", "-o", "jsonpath={.spec.wasm.url}")
	eventually(t, "the filter", loaded(gateway, digestOf(t, image)))
	stats, err := gateway.admin(t.Context(), "/stats?filter=wasm")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stats, "wasm.envoy.wasm.runtime.v8.active: 0") || !strings.Contains(stats, "wasm.envoy.wasm.runtime.v8.active: ") {
		t.Errorf("no Wasm runs: %s", stats)
	}
}

// effectChanges is enough for a figure to be seen, not for its 99th percentile.
const effectChanges = 20

func TestAnAnnotationsChangeComesIntoEffect(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "changing", namespace: strict, function: true, replicas: 1}
	deploy(t, gateway, f)
	ok(t, gateway, f, true)
	var took []time.Duration
	for i := range effectChanges {
		input := fmt.Sprintf("s3://{header.x-bucket}/{header.x-key}%d", i)
		kubectl(t, "-n", strict, "annotate", "service", f.name, "--overwrite", "headstart.dev/input="+input)
		began := time.Now()
		eventually(t, input, templated(gateway, f, input))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("from kubectl's end to the gateway: median %v, worst %v, of %v", took[len(took)/2], took[len(took)-1], took)
	if a, err := call(t.Context(), gateway, f, true); err != nil || a.status != 404 && a.status != 502 && a.status != 424 {
		t.Errorf("an input that is not there: %v %v", a, err)
	}
	kubectl(t, "-n", strict, "annotate", "service", f.name, "--overwrite", "headstart.dev/input="+testbed.Input)
	eventually(t, "the input is back", func(ctx context.Context) error {
		a, err := call(ctx, gateway, f, true)
		if err == nil && a.report.Body.SHA256 != digest {
			err = errors.New(a.String())
		}
		return err
	})
}

// Older Istios know no TrafficExtension.
func TestTheFilterAsAWasmPlugin(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "plugin", namespace: strict, function: true, replicas: 1}
	deploy(t, gateway, f)
	ok(t, gateway, f, true)
	under(t, f, []pod{gateway}, func() { set(t, "istio.extension", "WasmPlugin", "TrafficExtension") })
	image := kubectl(t, "-n", "istio-system", "get", "wasmplugin", "headstart-prefetch", "-o", "jsonpath={.spec.url}")
	eventually(t, "the filter", loaded(gateway, digestOf(t, image)))
	eventually(t, "one filter", func(ctx context.Context) error {
		all, err := filters(ctx, gateway)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%.600q", all)
		}
		return err
	})
	if a := ok(t, gateway, f, true); !a.from(daemonIdentity) {
		t.Errorf("the filter did not send it to the daemon: %v", a)
	}
}

// set changes a value of the chart for the length of a test.
func set(t *testing.T, key, value, back string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		if err := upgrade(ctx, "--set", key+"="+back); err != nil {
			t.Error(err)
		}
	})
	if err := upgrade(t.Context(), "--set", key+"="+value); err != nil {
		t.Fatal(err)
	}
}
