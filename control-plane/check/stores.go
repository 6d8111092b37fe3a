package check

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// secretKey is the key of a store's Secret that becomes the daemons' file.
const secretKey = "credentials"

// configuredStores is the operator's list, as the control plane has it.
type configuredStores struct {
	// from is the ConfigMap; empty: the control plane is told of none.
	from   string
	stores stores.Stores
}

// stores reads the list from where the control plane's --stores is mounted from.
func (l *look) stores(ctx context.Context) (configuredStores, error) {
	return l.storesOnce.get(func() (configuredStores, error) {
		d, err := l.controlPlane(ctx)
		if err != nil {
			return configuredStores{}, err
		}
		name, key, ok := mountedFrom(d.Spec.Template.Spec, "--stores")
		if !ok {
			return configuredStores{}, nil
		}
		from := "ConfigMap " + l.Namespace + "/" + name
		c, err := objects.Get[corev1.ConfigMap](ctx, l.Objects, objects.ConfigMaps, l.Namespace, name)
		if err != nil {
			return configuredStores{from: from}, err
		}
		text, ok := c.Data[key]
		if !ok {
			return configuredStores{from: from}, fmt.Errorf("%s has no key %s", from, key)
		}
		list, err := stores.Parse([]byte(text))
		if err != nil {
			return configuredStores{from: from}, fmt.Errorf("%s: %w", from, err)
		}
		return configuredStores{from, list}, nil
	})
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

func lookStores(ctx context.Context, l *look) Outcome {
	configured, err := l.stores(ctx)
	if err != nil {
		return unknown("the list of stores", err)
	}
	if len(configured.stores) == 0 {
		return pass("none; no function can have an input")
	}
	var missing []Problem
	unseen := 0
	for _, s := range configured.stores {
		var secret corev1.Secret
		var err error
		if s.Secret != "" {
			secret, err = objects.Get[corev1.Secret](ctx, l.Objects, objects.Secrets, l.Namespace, s.Secret)
		}
		switch {
		case s.Secret == "": // Redis and HTTP may have none
		case apierrors.IsForbidden(err):
			unseen++
		case apierrors.IsNotFound(err):
			missing = append(missing, Problem{Object: "store " + s.Name, Message: "its credentials, Secret " + l.Namespace + "/" + s.Secret + ", are not there"})
		case err != nil:
			return unknown("Secret "+s.Secret, err)
		case len(secret.Data[secretKey]) == 0:
			missing = append(missing, Problem{Object: "store " + s.Name, Message: "Secret " + l.Namespace + "/" + s.Secret + " has nothing under " + secretKey})
		}
		for _, n := range s.Namespaces {
			if _, err := objects.Get[corev1.Namespace](ctx, l.Objects, objects.Namespaces, "", n); apierrors.IsNotFound(err) {
				missing = append(missing, Problem{Object: "store " + s.Name, Message: "it is granted to namespace " + n + ", which is not there"})
			}
		}
	}
	count := fmt.Sprintf("%d in %s", len(configured.stores), configured.from)
	switch {
	case len(missing) > 0:
		return fail("%s", count).with(missing)
	case unseen > 0:
		return pass("%s; you may not look at their Secrets", count)
	}
	return pass("%s", count)
}
