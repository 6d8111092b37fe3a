package check

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// secretKey is the key of a store's, or a destination's, Secret that becomes the daemons' file.
const secretKey = "credentials"

// configured is a list of the operator's, as the control plane has it.
type configured[T any] struct {
	// from is the ConfigMap; empty: the control plane is told of none.
	from string
	list T
}

// stores reads the list of stores.
func (l *look) stores(ctx context.Context) (configured[stores.Stores], error) {
	return l.storesOnce.get(func() (configured[stores.Stores], error) {
		return readList(ctx, l, "--stores", stores.Parse)
	})
}

// destinations reads the list of destinations.
func (l *look) destinations(ctx context.Context) (configured[destinations.Destinations], error) {
	return l.destinationsOnce.get(func() (configured[destinations.Destinations], error) {
		return readList(ctx, l, "--destinations", func(text []byte) (destinations.Destinations, error) {
			return destinations.Parse(text, destinations.Sandbox)
		})
	})
}

// readList reads a list from where the file of the control plane's flag is mounted from.
func readList[T any](ctx context.Context, l *look, flag string, parse func([]byte) (T, error)) (configured[T], error) {
	var none configured[T]
	d, err := l.controlPlane(ctx)
	if err != nil {
		return none, err
	}
	name, key, ok := mountedFrom(d.Spec.Template.Spec, flag)
	if !ok {
		return none, nil
	}
	none.from = "ConfigMap " + l.Namespace + "/" + name
	c, err := objects.Get[corev1.ConfigMap](ctx, l.Objects, objects.ConfigMaps, l.Namespace, name)
	if err != nil {
		return none, err
	}
	text, ok := c.Data[key]
	if !ok {
		return none, fmt.Errorf("%s has no key %s", none.from, key)
	}
	list, err := parse([]byte(text))
	if err != nil {
		return none, fmt.Errorf("%s: %w", none.from, err)
	}
	return configured[T]{none.from, list}, nil
}

// mountedFrom finds the ConfigMap and its key that a flag's file comes from.
func mountedFrom(pod corev1.PodSpec, flag string) (configMap, key string, ok bool) {
	for _, c := range pod.Containers {
		file := flagValue(append(c.Command, c.Args...), flag)
		if file == "" {
			continue
		}
		for _, m := range c.VolumeMounts {
			key, below := strings.CutPrefix(file, strings.TrimSuffix(m.MountPath, "/")+"/")
			if m.MountPath == file && m.SubPath != "" {
				key, below = m.SubPath, true
			}
			if !below {
				continue
			}
			if name, key, ok := volumeSource(pod.Volumes, m.Name, key); ok {
				return name, key, true
			}
		}
	}
	return "", "", false
}

// flagValue returns the value of --flag=value or --flag value.
func flagValue(args []string, flag string) string {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func volumeSource(volumes []corev1.Volume, name, file string) (configMap, key string, ok bool) {
	for _, v := range volumes {
		if v.Name != name || v.ConfigMap == nil {
			continue
		}
		for _, item := range v.ConfigMap.Items {
			if path.Clean(item.Path) == file {
				return v.ConfigMap.Name, item.Key, true
			}
		}
		return v.ConfigMap.Name, file, true
	}
	return "", "", false
}

// listed is an entry of a list, with what it names.
type listed struct {
	object, secret string
	namespaces     []string
}

func lookStores(ctx context.Context, l *look) Outcome {
	found, err := l.stores(ctx)
	if err != nil {
		return unknown("the list of stores", err)
	}
	var all []listed
	for _, s := range found.list {
		all = append(all, listed{"store " + s.Name, s.Secret, s.Namespaces})
	}
	return l.lookListed(ctx, all, found.from, "none; no function can have an input")
}

func lookDestinations(ctx context.Context, l *look) Outcome {
	found, err := l.destinations(ctx)
	if err != nil {
		return unknown("the list of destinations", err)
	}
	var all []listed
	for _, d := range found.list {
		all = append(all, listed{"destination " + d.Name, d.Secret, d.Namespaces})
	}
	return l.lookListed(ctx, all, found.from, "none; no function can have connections")
}

// lookConnections looks for nodes whose kernels do less for connections than others.
func lookConnections(ctx context.Context, l *look) Outcome {
	found, err := l.destinations(ctx)
	if err != nil {
		return unknown("the list of destinations", err)
	}
	s, err := l.status(ctx)
	if err != nil {
		return unknown("its status", err)
	}
	if len(found.list) == 0 {
		return skip("there is no destination")
	}
	encrypts := slices.ContainsFunc(found.list, func(d destinations.Destination) bool { return d.TLS != nil })
	lacking := map[string]bool{}
	var problems []Problem
	lacks := func(node, message, why string) {
		lacking[node] = true
		problems = append(problems, Problem{Object: "Node " + node, Message: message + ": " + why})
	}
	for _, n := range s.Nodes {
		if encrypts && n.NoKernelTLS != "" {
			lacks(n.Name, "connections with TLS end with its daemon", n.NoKernelTLS)
		}
		if n.NoConnect != "" {
			lacks(n.Name, "programs get no connections by connect", n.NoConnect)
		}
	}
	if len(problems) > 0 {
		return warn("%d of %d nodes cannot do all", len(lacking), len(s.Nodes)).with(problems)
	}
	return pass("%d %s can do all", len(s.Nodes), plural(len(s.Nodes), "node", "nodes"))
}

// lookListed looks for the Secrets and namespaces that a list names.
func (l *look) lookListed(ctx context.Context, all []listed, from, none string) Outcome {
	if len(all) == 0 {
		return pass("%s", none)
	}
	var missing []Problem
	unseen := 0
	for _, e := range all {
		var secret corev1.Secret
		var err error
		if e.secret != "" {
			secret, err = objects.Get[corev1.Secret](ctx, l.Objects, objects.Secrets, l.Namespace, e.secret)
		}
		switch {
		case e.secret == "": // none is needed
		case apierrors.IsForbidden(err):
			unseen++
		case apierrors.IsNotFound(err):
			missing = append(missing, Problem{Object: e.object,
				Message: "its credentials, Secret " + l.Namespace + "/" + e.secret + ", are not there"})
		case err != nil:
			return unknown("Secret "+e.secret, err)
		case len(secret.Data[secretKey]) == 0:
			missing = append(missing, Problem{Object: e.object,
				Message: "Secret " + l.Namespace + "/" + e.secret + " has nothing under " + secretKey})
		}
		for _, n := range e.namespaces {
			if _, err := objects.Get[corev1.Namespace](ctx, l.Objects, objects.Namespaces, "", n); apierrors.IsNotFound(err) {
				missing = append(missing, Problem{Object: e.object,
					Message: "it is granted to namespace " + n + ", which is not there"})
			}
		}
	}
	count := fmt.Sprintf("%d in %s", len(all), from)
	switch {
	case len(missing) > 0:
		return fail("%s", count).with(missing)
	case unseen > 0:
		return pass("%s; you may not look at their Secrets", count)
	}
	return pass("%s", count)
}
