package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/history"
)

// service is a Service of the cluster with one of its ports, as --prometheus names it.
var service = regexp.MustCompile(`^([a-z0-9-]+)/([a-z0-9-]+):([a-z0-9-]+)$`)

// prometheus returns the server by its URL, or by the name of its Service, which the API server leads to.
func (k *cluster) prometheus(name string) (*history.Server, error) {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		u, err := url.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("--prometheus: %w", err)
		}
		return history.New(u.String(), http.DefaultTransport)
	}
	parts := service.FindStringSubmatch(name)
	if parts == nil {
		return nil, fmt.Errorf("--prometheus: %q is neither a URL nor a Service: write it like istio-system/prometheus:9090 or http://127.0.0.1:9090", name)
	}
	config, err := k.config()
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	return history.New(base.JoinPath("api", "v1", "namespaces", parts[1], "services", parts[2]+":"+parts[3], "proxy").String(), transport)
}

// mayLook says which rights an advice needs.
func (k *cluster) mayLook(err error) error {
	if apierrors.IsForbidden(err) {
		return errors.Join(err, errors.New("you need list of services, pods, deployments, statefulsets and horizontalpodautoscalers; name a namespace by -n if you have it in one"))
	}
	return err
}
