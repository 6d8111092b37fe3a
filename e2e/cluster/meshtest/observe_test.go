//go:build cluster

package meshtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// named is what the nodes say of observed inputs.
type named struct {
	Function, Template                      string
	Requests, Distinct, Incomplete, Unnamed int64
	Latest                                  []struct{ Reference string }
}

// observations asks for what the service's input has named.
func observations(ctx context.Context, s service) (n named, err error) {
	var all []named
	if err := in.CLI(ctx, &all, "advise", "--observed", "-n", s.namespace); err != nil {
		return n, err
	}
	for _, n := range all {
		if n.Function == s.namespace+"/"+s.name {
			return n, nil
		}
	}
	return n, errors.New("nothing has been observed")
}

// An observed function's requests take the way that they take without Headstart, and what they would have fetched is told. Then
// it is fetched.
func TestInputsAreObservedBeforeTheyAreFetched(t *testing.T) {
	gateway := ingressGateway(t)
	s := service{name: "observed", namespace: strict, replicas: 1, observed: true}
	deploy(t, gateway, s)
	eventually(t, "a pod at the gateway", endpoints(gateway, s))
	untouched := func(input bool) {
		t.Helper()
		a, err := call(t.Context(), gateway, s, input)
		if err != nil || a.status != 200 || a.report.Body.Bytes != 0 || a.report.File.Bytes != 0 {
			t.Fatalf("input %v: %v %v", input, a, err)
		}
		for _, header := range []map[string][]string{a.header, a.report.Header} {
			for name := range header {
				if strings.HasPrefix(strings.ToLower(name), "x-headstart-") {
					t.Errorf("there is a header %s", name)
				}
			}
		}
	}
	eventually(t, "an observation", func(ctx context.Context) error {
		untouched(true)
		n, err := observations(ctx, s)
		if err == nil && n.Requests == 0 {
			err = errors.New("no request")
		}
		return err
	})
	before, err := observations(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	const requests = 5
	for range requests {
		untouched(true)
	}
	untouched(false) // it names nothing
	incomplete, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gateway.ip+":8080/", nil)
	if err != nil {
		t.Fatal(err)
	}
	incomplete.Host = s.host()
	incomplete.Header.Set("x-bucket", testbed.Bucket)
	if resp, err := client.Do(incomplete); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a request whose template lacks something: %v, %v", resp, err)
	}
	eventually(t, "all observations", func(ctx context.Context) error {
		n, err := observations(ctx, s)
		if err == nil && (n.Requests != before.Requests+requests || n.Incomplete != 1 || n.Unnamed != 1) {
			err = fmt.Errorf("%+v after %+v", n, before)
		}
		return err
	})
	n, err := observations(t.Context(), s)
	want := "s3://" + testbed.Bucket + "/" + inputKey
	if err != nil || n.Distinct != 1 || n.Template != testbed.Input || len(n.Latest) == 0 || n.Latest[0].Reference != want {
		t.Errorf("%+v, %v", n, err)
	}
	clusters, err := gateway.admin(t.Context(), "/clusters")
	if err != nil || strings.Contains(clusters, s.cluster()+"::/run/headstart/") {
		t.Errorf("its requests may go by the daemon: %v", err)
	}

	s.observed, s.function = false, true
	deploy(t, gateway, s)
	eventually(t, "an answer with the input", func(ctx context.Context) error {
		a, err := call(ctx, gateway, s, true)
		if err == nil && a.report.Body.SHA256 != digest {
			err = fmt.Errorf("it had none: %v", a)
		}
		return err
	})
}
