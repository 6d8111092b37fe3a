package s3

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestLoadCredentials(t *testing.T) {
	c, err := LoadCredentials(sourcetest.Secrets(t, "edge", 0o400, "access_key_id = "+testKeyID+"\nsecret_access_key="+testSecret+"=\nsession_token = t\n"), "edge")
	if err != nil {
		t.Fatal(err)
	}
	if c.Get(keyID) != testKeyID || c.Get(keySecret) != testSecret+"=" || c.Get(keyTemporary) != "t" {
		t.Errorf("got %q, %q, %q", c.Get(keyID), c.Get(keySecret), c.Get(keyTemporary))
	}
	for _, content := range []string{"", "access_key_id=i", "secret_access_key=" + testSecret} {
		_, err := LoadCredentials(sourcetest.Secrets(t, "edge", 0o600, content), "edge")
		if err == nil || !strings.Contains(err.Error(), "are required") || strings.Contains(err.Error(), testSecret) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// Credentials that cannot be read are the operator's to fix, and no request is made: not with the
// daemon's own credentials either.
func TestFetchWithoutCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "the daemon's own")
	}
	store := &fakeStore{}
	s, end := serve(t, store)
	defer end()
	lost := errors.New("lost")
	cfg := config(nil)
	for _, load := range []func(context.Context) (secret.Secret, error){
		func(context.Context) (secret.Secret, error) { return secret.Secret{}, lost },
		func(context.Context) (secret.Secret, error) { return secret.Secret{}, nil },
	} {
		cfg.Credentials = load
		other, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		other.transport.DialContext = s.transport.DialContext
		err = other.Fetch(t.Context(), store.put("k", "content"), "", (&sourcetest.Sink{}).Begin)
		p := problem.Of(err)
		if p.Title != "StoreForbidden" || p.Status != http.StatusBadGateway || p.Field != "headstart.dev/store" || strings.Contains(p.Detail, "lost") {
			t.Errorf("got %v", p)
		}
	}
	if len(store.requests) != 0 {
		t.Errorf("requests %q", store.requests)
	}
}
