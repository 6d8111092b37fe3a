package istio

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

// API is the part of an API server that a Writer needs. Its errors are those of
// k8s.io/apimachinery/pkg/api/errors; NotFound from Each and Watch says that the server
// does not know the kind.
type API interface {
	// Each calls do with each object of a namespace that q selects. It holds a few of them at a time.
	Each(ctx context.Context, k Kind, namespace string, q Query, do func(unstructured.Unstructured)) error
	// Apply makes o's fields so, by server-side apply as FieldManager. Without force a
	// field of another manager is a Conflict. An o with a UID is not created.
	Apply(ctx context.Context, k Kind, o *unstructured.Unstructured, force bool) error
	// Delete removes the object with this UID, and no other of its name.
	Delete(ctx context.Context, k Kind, namespace, name string, uid types.UID) error
	// Watch begins with the objects that are there. It ends with ctx, or when the server
	// says so.
	Watch(ctx context.Context, k Kind, namespace string, q Query) (watch.Interface, error)
}

// pageSize is how many objects come from the API server at a time. One takes some 15 KB of memory, and there is one
// for each function.
const pageSize = 250

// Query selects objects: all that have Labels, or the one with the name.
type Query struct {
	Labels string // a label selector
	Name   string
}

func (q Query) options() metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: q.Labels}
	if q.Name != "" {
		o.FieldSelector = "metadata.name=" + q.Name
	}
	return o
}

// Connect returns the API of a real server. Its calls are not limited on our side: the
// server's own fairness is, and a queue here would hold up the changes behind it.
func Connect(config *rest.Config) (API, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("client for Istio's objects: %w", err)
	}
	return server{client}, nil
}

type server struct{ client dynamic.Interface }

func (s server) Each(ctx context.Context, k Kind, namespace string, q Query, do func(unstructured.Unstructured)) error {
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.client.Resource(k.GVR()).Namespace(namespace).List(ctx, o)
	})
	list.PageSize, list.PageBufferSize = pageSize, 0
	return list.EachListItem(ctx, q.options(), func(o runtime.Object) error {
		do(*o.(*unstructured.Unstructured))
		return nil
	})
}

func (s server) Apply(ctx context.Context, k Kind, o *unstructured.Unstructured, force bool) error {
	_, err := s.client.Resource(k.GVR()).Namespace(o.GetNamespace()).
		Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: FieldManager, Force: force})
	return err
}

func (s server) Delete(ctx context.Context, k Kind, namespace, name string, uid types.UID) error {
	return s.client.Resource(k.GVR()).Namespace(namespace).
		Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

func (s server) Watch(ctx context.Context, k Kind, namespace string, q Query) (watch.Interface, error) {
	return s.client.Resource(k.GVR()).Namespace(namespace).Watch(ctx, q.options())
}
