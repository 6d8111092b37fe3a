package world

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// Snapshot is what is there of Headstart, and of what its installer may change: objects as
// kind namespace/name, files as node:path with mode and digest.
type Snapshot map[string]bool

// nodeFiles lists what an installation may touch on a node, with digests: a file that is
// changed and not put back counts.
const nodeFiles = `find /etc/containerd /opt /usr/local/bin /var/lib/headstart /run/headstart /lib/systemd /etc/systemd -xdev \
	\( -type f -printf '%m ' -exec sha256sum {} \; \) -o \( -not -type f -printf '%m %y %p %l\n' \) 2>/dev/null; true`

// expiring kinds go by themselves, or are other objects' shadows.
var expiring = map[string]bool{"events": true, "events.events.k8s.io": true, "leases.coordination.k8s.io": true,
	"endpoints": true, "endpointslices.discovery.k8s.io": true, "componentstatuses": true, "apiservices.apiregistration.k8s.io": true}

// TakeSnapshot looks at the cluster's objects and the nodes' files.
func (w *World) TakeSnapshot(ctx context.Context) (Snapshot, error) {
	s := Snapshot{}
	kinds, err := w.Output(ctx, nil, "kubectl", "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	for kind := range strings.FieldsSeq(kinds) {
		if expiring[kind] {
			continue
		}
		if err := w.objects(ctx, s, kind); err != nil {
			return nil, err
		}
	}
	for _, n := range w.Nodes() {
		out, err := n.Run(ctx, "sh", "-c", nodeFiles)
		if err != nil {
			return nil, fmt.Errorf("listing the files of %s: %w", n.Name, err)
		}
		for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
			s[n.Name+": "+lines.Text()] = true
		}
	}
	return s, nil
}

// objects adds those of one kind that bear Headstart's name in name, labels or, for nodes,
// their own labels.
func (w *World) objects(ctx context.Context, s Snapshot, kind string) error {
	out, err := w.Output(ctx, nil, "kubectl", "get", kind, "--all-namespaces", "--ignore-not-found", "-o", "json")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) == "" {
		return nil
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("reading %s: %w", kind, err)
	}
	for _, item := range list.Items {
		m := item.Metadata
		if m.Name == System || m.Name == "workflows.headstart.dev" { // the operator's own namespace, and the kind of users' objects
			continue
		}
		// A gateway that was restarted meanwhile is still the same gateway.
		if hash := m.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
			m.Name, _, _ = strings.Cut(m.Name, "-"+hash)
		}
		for k, v := range m.Labels {
			if strings.HasPrefix(k, "headstart.dev/") || v == "headstart" {
				s[fmt.Sprintf("%s %s/%s: label %s=%s", kind, m.Namespace, m.Name, k, v)] = true
			}
		}
		if strings.Contains(m.Name, "headstart") {
			s[fmt.Sprintf("%s %s/%s", kind, m.Namespace, m.Name)] = true
		}
	}
	return nil
}

// Residue is what came after s was taken and is still there, and what is gone since.
func (w *World) Residue(ctx context.Context, before Snapshot) ([]string, error) {
	now, err := w.TakeSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	var residue []string
	for what := range now {
		if !before[what] {
			residue = append(residue, "left: "+what)
		}
	}
	for what := range before {
		// The directory for sockets is Headstart's, also if a gateway's mount has made it.
		if !now[what] && !strings.Contains(what, " d /run/headstart") {
			residue = append(residue, "lost: "+what)
		}
	}
	return residue, nil
}
