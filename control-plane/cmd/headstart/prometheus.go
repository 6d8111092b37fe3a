package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/history"
)

// serviceAddress is a port of a Service of the cluster, as --prometheus names it: namespace, https: if it serves TLS, name, port,
// and a path before that of Prometheus' API.
var serviceAddress = regexp.MustCompile(`^([a-z0-9-]+)/((?:https:)?[a-z0-9-]+:[a-z0-9-]+)((?:/[A-Za-z0-9_-]+)*)/?$`)

// prometheus returns the past that a server knows, by the server's URL or by its Service, which the API server leads to.
func (k *cluster) prometheus(ctx context.Context, name string, since time.Duration) (*history.Past, error) {
	address, transport := name, http.DefaultTransport
	if !strings.HasPrefix(name, "http://") && !strings.HasPrefix(name, "https://") {
		parts := serviceAddress.FindStringSubmatch(name)
		if parts == nil {
			return nil, fmt.Errorf("--prometheus: %q is neither a URL nor a Service: write it like istio-system/prometheus:9090, "+
				"monitoring/https:prometheus:web or http://127.0.0.1:9090", name)
		}
		config, err := k.config()
		if err != nil {
			return nil, err
		}
		if transport, err = rest.TransportFor(config); err != nil {
			return nil, fmt.Errorf("the kubeconfig: %w", err)
		}
		base, _, err := rest.DefaultServerUrlFor(config)
		if err != nil {
			return nil, fmt.Errorf("the kubeconfig: %w", err)
		}
		address = base.JoinPath("api", "v1", "namespaces", parts[1], "services", parts[2], "proxy", parts[3]).String()
	}
	past, err := history.Open(ctx, address, transport, since, time.Now())
	if err != nil {
		err = fmt.Errorf("--prometheus: %w", err)
	}
	return past, err
}

// explainLook says what an advice needs of an API server that refuses it.
func (k *cluster) explainLook(config *rest.Config, err error) error {
	if apierrors.IsForbidden(err) {
		return errors.Join(err, errors.New("you need list of services, pods, deployments, statefulsets, horizontalpodautoscalers and, if KEDA is there, "+
			"scaledobjects: if you may list them in one namespace only, name it by -n"))
	}
	return k.explain(config, err)
}
