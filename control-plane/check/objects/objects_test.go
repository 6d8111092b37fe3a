package objects_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a Reader of a server that answers by path.
func connect(t *testing.T, answers map[string]string) *objects.Reader {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, ok := answers[r.URL.RequestURI()]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, "404 page not found")
			return
		}
		if strings.Contains(text, `"Forbidden"`) {
			w.WriteHeader(http.StatusForbidden)
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() // it serves a configuration without TLS
		s.Close()
	})
	r, err := objects.Connect(&rest.Config{Host: s.URL + "/clusters/a"}) // as behind a proxy
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVersion(t *testing.T) {
	r := connect(t, map[string]string{"/clusters/a/version": `{"gitVersion":"v1.36.3"}`})
	if v, err := r.Version(t.Context()); err != nil || v != "v1.36.3" {
		t.Errorf("%q, %v", v, err)
	}
	for answer, want := range map[string]string{
		`{"hello":"` + strings.Repeat("x", 100) + `"}`: "no Kubernetes API server",
		"<html>": "no Kubernetes API server",
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"you may not","reason":"Forbidden","code":403}`: "you may not",
	} {
		_, err := connect(t, map[string]string{"/clusters/a/version": answer}).Version(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 || strings.Contains(want, "may not") != apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	if _, err := connect(t, nil).Version(t.Context()); err == nil || !strings.Contains(
		err.Error(), "the server could not find the requested resource",
	) {
		t.Error(err)
	}
}

func TestServes(t *testing.T) {
	r := connect(t, map[string]string{
		"/clusters/a/apis/networking.istio.io/v1alpha3": `{"resources":[{"name":"envoyfilters"},{"name":"envoyfilters/status"}]}`,
		"/clusters/a/api/v1":                            `{"resources":[{"name":"pods"}]}`,
		"/clusters/a/apis/keda.sh/v1alpha1":             `{"kind":"Status","message":"no","reason":"Forbidden"}`,
	})
	for _, c := range []struct {
		resource schema.GroupVersionResource
		served   bool
	}{{objects.EnvoyFilters, true}, {objects.Pods, true}, {objects.Secrets, false}, {objects.KnativeServices, false}} {
		if got, err := r.Serves(t.Context(), c.resource); err != nil || got != c.served {
			t.Errorf("%v: %v, %v", c.resource, got, err)
		}
	}
	if _, err := r.Serves(t.Context(), objects.ScaledObjects); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
}

func TestListsHaveSeveralPages(t *testing.T) {
	page := func(name, more string) string {
		return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"continue":%q},"items":[{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q},"spec":{"nodeName":"n"}}]}`, more, name)
	}
	r := connect(t, map[string]string{
		"/clusters/a/api/v1/namespaces/default/pods?labelSelector=a%3Db&limit=500":               page("one", "next"),
		"/clusters/a/api/v1/namespaces/default/pods?continue=next&labelSelector=a%3Db&limit=500": page("two", ""),
	})
	pods, err := objects.List[corev1.Pod](t.Context(), r, objects.Pods, "default", "a=b")
	if err != nil || len(pods) != 2 || pods[1].Name != "two" || pods[1].Spec.NodeName != "n" {
		t.Errorf("%+v, %v", pods, err)
	}
	if _, err := objects.Get[corev1.Pod](t.Context(), r, objects.Pods, "default", "three"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
