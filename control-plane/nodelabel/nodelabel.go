// Package nodelabel labels nodes with the volumes that they keep, so that Kubernetes' scheduler can prefer them. A label
// is a hint: two volumes whose names differ by punctuation alone may share one.
package nodelabel

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// suffix stands between a label's namespace and its volume.
	suffix = ".volumes.headstart.dev/"
	// value is that of each label.
	value = "kept"
	// bytesLeast: less comes in half a second at 1 Gbit/s, for which no pod need go elsewhere.
	bytesLeast = 64 << 20
	// perNamespace and perNode bound a node's labels: an object of the API server has to stay small.
	perNamespace, perNode = 16, 128
	// lookEvery is how soon a new volume shows: daemons tell of one every 5 s.
	lookEvery = 5 * time.Second
	// againEvery is how soon labels are back that somebody else has taken off.
	againEvery = 10 * time.Minute
	// writeTimeout bounds one request.
	writeTimeout = 5 * time.Second
)

var words = regexp.MustCompile(`[A-Za-z0-9]+`)

// Key is the label of a volume, of at most validation.LabelValueMaxLength characters after the slash: the last ones. The
// chart's policy says the same in CEL.
func Key(namespace, prefix string) string {
	name := strings.Join(words.FindAllString(prefix, -1), "_")
	name = name[max(0, len(name)-validation.LabelValueMaxLength):]
	return namespace + suffix + strings.TrimPrefix(name, "_")
}

// Of are the labels of a node that keeps this: those of the largest volumes.
func Of(kept *nodeapi.Keeps) map[string]string {
	volumes := slices.Clone(kept.GetVolumes())
	slices.SortFunc(volumes, func(a, b *nodeapi.KeptVolume) int {
		return cmp.Or(cmp.Compare(b.GetBytes(), a.GetBytes()), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetPrefix(), b.GetPrefix()))
	})
	labels, of := map[string]string{}, map[string]int{}
	for _, v := range volumes {
		namespace, key := v.GetNamespace(), Key(v.GetNamespace(), v.GetPrefix())
		if v.GetBytes() < bytesLeast || labels[key] != "" || of[namespace] == perNamespace || len(labels) == perNode {
			continue
		}
		// A node says what it likes.
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsQualifiedName(key)) > 0 {
			continue
		}
		labels[key] = value
		of[namespace]++
	}
	return labels
}

// Labels keeps the labels of all nodes as they should be.
type Labels struct {
	Nodes corev1client.NodeInterface
	// Keeps is what nodes keep, by node.
	Keeps func() map[string]*nodeapi.Keeps
	Log   *slog.Logger
}

// Run does so until ctx ends. Labels of nodes of which nothing is heard stay.
func (l *Labels) Run(ctx context.Context) {
	type written struct {
		labels map[string]string
		at     time.Time
		failed bool
	}
	nodes := map[string]written{}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		all := l.Keeps()
		maps.DeleteFunc(nodes, func(node string, _ written) bool { return all[node] == nil })
		for node, kept := range all {
			labels, before := Of(kept), nodes[node]
			if !before.failed && maps.Equal(labels, before.labels) && time.Since(before.at) < againEvery {
				continue
			}
			err := l.write(ctx, node, labels)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !before.failed {
				l.Log.Warn("a node cannot be labelled with its volumes; trying again", "node", node, "error", err)
			}
			nodes[node] = written{labels, time.Now(), err != nil}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Labels) write(ctx context.Context, node string, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := l.Nodes.Apply(ctx, corev1ac.Node(node).WithLabels(labels), metav1.ApplyOptions{FieldManager: nodeapi.VolumeLabels, Force: true})
	return err
}
