package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// Processes returns the ids of a program's processes in the cluster's pods, which are this
// machine's, by the name of its file. The machine may run the program for others, too.
func Processes(program string) ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && filepath.Base(target) == program {
			// One that has ended meanwhile is in no cgroup any more.
			cgroups, err := os.ReadFile(filepath.Join(filepath.Dir(link), "cgroup"))
			if err != nil || !cluster.Has(string(cgroups)) {
				continue
			}
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// EnvoyOf asks Envoy's admin interface in a pod, which listens on the pod's loopback only.
type EnvoyOf struct {
	client http.Client
	root   string // of its file system
}

// Envoy finds the Envoy of a pod by the pod's uid.
func (w *World) Envoy(podUID string) (*EnvoyOf, error) {
	pids, err := Processes("envoy")
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !bytes.Contains(cgroup, []byte(podUID)) {
			continue
		}
		namespace := fmt.Sprintf("/proc/%d/ns/net", pid)
		dial := func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = nsthread.Run(namespace, func() error {
				var d net.Dialer
				conn, err = d.DialContext(ctx, "tcp", "127.0.0.1:15000")
				return err
			})
			return conn, err
		}
		return &EnvoyOf{http.Client{Transport: &http.Transport{DialContext: dial}}, fmt.Sprintf("/proc/%d/root", pid)}, nil
	}
	return nil, errors.New("no Envoy runs in pod " + podUID)
}

// GatewayEnvoy is the Envoy of Istio's gateway.
func (w *World) GatewayEnvoy(ctx context.Context) (*EnvoyOf, error) {
	uid, err := w.Output(ctx, nil, "kubectl", "-n", "istio-system", "get", "pods", "-l", "app=istio-ingressgateway",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].metadata.uid}")
	if err != nil {
		return nil, err
	}
	return w.Envoy(strings.TrimSpace(uid))
}

// Get returns what a page of the admin interface says.
func (e *EnvoyOf) Get(ctx context.Context, path string) (string, error) {
	return get(ctx, &e.client, path, http.Header{})
}

// Ask returns what the pod's node says at a unix socket that the Envoy has, to who has the key in a file of the Envoy's.
func (e *EnvoyOf) Ask(ctx context.Context, socket, path, keyFile string) (string, error) {
	key, err := os.ReadFile(e.root + keyFile)
	if err != nil {
		return "", err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", e.root+socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	return get(ctx, client, path, http.Header{http.CanonicalHeaderKey(filterapi.HeaderKey): {string(key)}})
}

func get(ctx context.Context, client *http.Client, path string, header http.Header) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, nil)
	if err != nil {
		return "", err
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// Close lets go of the connection.
func (e *EnvoyOf) Close() { e.client.CloseIdleConnections() }
