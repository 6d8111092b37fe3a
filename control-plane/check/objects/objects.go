// Package objects reads the objects of a Kubernetes cluster for somebody who looks at it
// once: without caches, and with only those types linked in that are looked at.
package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// page is how many objects one call lists.
	page = 500
	// objectsMost bounds a list: who has more knows how to look for himself.
	objectsMost = 50_000
)

// Reader reads objects. Its errors are those of k8s.io/apimachinery/pkg/api/errors where
// the API server has answered.
type Reader struct {
	dynamic dynamic.Interface
	fetch   Fetch
}

// Fetch returns what the API server answers to a GET of a path, such as /version.
type Fetch func(ctx context.Context, path string) ([]byte, error)

// Connect returns a Reader of the API server of config.
func Connect(config *rest.Config) (*Reader, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1 // one person, some dozens of calls
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	answers := runtime.NewScheme() // those that are errors
	metav1.AddToGroupVersion(answers, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(answers).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return New(d, func(ctx context.Context, path string) ([]byte, error) {
		answer := client.Get().AbsPath(path).Do(ctx)
		if err := answer.Error(); err != nil { // which has the API server's words
			return nil, err
		}
		return answer.Raw()
	}), nil
}

// New returns a Reader from its parts.
func New(d dynamic.Interface, f Fetch) *Reader { return &Reader{d, f} }

// Version returns the API server's version, such as v1.36.3.
func (r *Reader) Version(ctx context.Context) (string, error) {
	text, err := r.fetch(ctx, "/version")
	if err != nil {
		return "", err
	}
	var v version.Info
	if err := json.Unmarshal(text, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("what answers is no Kubernetes API server: /version is %q", clip(text))
	}
	return v.GitVersion, nil
}

func clip(text []byte) string {
	const most = 60
	return string(text[:min(len(text), most)])
}

// Serves reports whether the API server knows the resource.
func (r *Reader) Serves(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	text, err := r.fetch(ctx, path)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(text, &list); err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, resource := range list.APIResources {
		if resource.Name == gvr.Resource {
			return true, nil
		}
	}
	return false, nil
}

// Get reads one object into T, a Kubernetes type or unstructured.Unstructured.
func Get[T any](ctx context.Context, r *Reader, gvr schema.GroupVersionResource, namespace, name string) (T, error) {
	var out T
	o, err := r.dynamic.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return out, err
	}
	return convert[T](o)
}

// List reads the objects of a namespace, or of all if it is empty, that have the labels
// of a selector.
func List[T any](ctx context.Context, r *Reader, gvr schema.GroupVersionResource, namespace, selector string) ([]T, error) {
	var out []T
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		list, err := r.dynamic.Resource(gvr).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			item, err := convert[T](&list.Items[i])
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
		if len(out) >= objectsMost {
			return nil, fmt.Errorf("there are more than %d %s", objectsMost, gvr.Resource)
		}
	}
}

func convert[T any](o *unstructured.Unstructured) (T, error) {
	var out T
	if u, ok := any(&out).(*unstructured.Unstructured); ok {
		u.Object = o.Object
		return out, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out); err != nil {
		return out, fmt.Errorf("reading %s %s: %w", strings.ToLower(o.GetKind()), o.GetName(), err)
	}
	return out, nil
}

// Unchanged has the API server judge an object as if it were written as it is, and changes nothing.
func (r *Reader) Unchanged(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	_, err := r.dynamic.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte("{}"),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

var accessReviews = schema.GroupVersionResource{Group: authorizationv1.GroupName, Version: "v1", Resource: "selfsubjectaccessreviews"}

// May reports whether the caller may do verb to the resource, which may have a
// subresource after a slash, in a namespace, or in all if it is empty.
func (r *Reader) May(ctx context.Context, verb string, gvr schema.GroupVersionResource, namespace string) (bool, error) {
	resource, sub, _ := strings.Cut(gvr.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: resource, Subresource: sub}},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return false, err
	}
	answer, err := r.dynamic.Resource(accessReviews).Create(ctx, &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	got, err := convert[authorizationv1.SelfSubjectAccessReview](answer)
	return got.Status.Allowed, err
}
