package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

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
		cfg.Credentials = FromSecret(load)
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

// alone takes from the environment what the SDK's chain would find there, and whom it would ask on a machine in a cloud.
func alone(t testing.TB) {
	t.Helper()
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// agent is what gives the credentials of a pod's identity to the processes in it.
func agent(t testing.TB, answer http.HandlerFunc) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", s.URL+"/credentials")
}

// by is a source with other credentials than a secret's.
func by(t *testing.T, store *fakeStore, credentials aws.CredentialsProvider) *Source {
	t.Helper()
	s, end := serve(t, store)
	t.Cleanup(end)
	cfg := config(nil)
	cfg.Credentials = credentials
	other, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other.transport.DialContext = s.transport.DialContext
	t.Cleanup(other.Close)
	return other
}

// signatures notes who signed the requests to a store.
func signatures(store *fakeStore) (by *[]string) {
	by = &[]string{}
	store.before = func(_ http.ResponseWriter, r *http.Request) bool {
		*by = append(*by, r.Header.Get("Authorization")+" "+r.Header.Get("X-Amz-Security-Token"))
		return false
	}
	return by
}

func TestAWorkloadsIdentitySigns(t *testing.T) {
	alone(t)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the pod's")
	var asked atomic.Int32
	agent(t, func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if r.Header.Get("Authorization") != "the pod's" {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		expires := time.Now().Add(time.Hour)
		if n == 1 {
			expires = time.Now() // when the first request is over, they are no good any more
		}
		fmt.Fprintf(w, `{"AccessKeyId":"ID%d","SecretAccessKey":"x","Token":"token-%[1]d","Expiration":%q}`, n, expires.UTC().Format(time.RFC3339))
	})
	store := &fakeStore{}
	signed := signatures(store)
	s := by(t, store, Workload("eu-central-1"))
	ref := store.put("k", "content")
	for i, want := range []string{"ID1", "ID2", "ID2"} {
		if err := s.Fetch(t.Context(), ref, "", (&sourcetest.Sink{}).Begin); err != nil {
			t.Fatal(err)
		}
		if got := (*signed)[i]; !strings.Contains(got, "Credential="+want+"/") || !strings.HasSuffix(got, " token-"+want[2:]) {
			t.Errorf("request %d is signed with %s, want %s", i, got, want)
		}
	}
}

// The token of a service account is exchanged for credentials, as IAM roles for service accounts do it.
func TestAServiceAccountsTokenSigns(t *testing.T) {
	alone(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("of-the-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Form.Get("WebIdentityToken") != "of-the-pod" || r.Form.Get("RoleArn") != "arn:aws:iam::1:role/inputs" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>x</SecretAccessKey>"+
			"<SessionToken>token</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(sts.Close)
	for name, value := range map[string]string{"AWS_ROLE_ARN": "arn:aws:iam::1:role/inputs", "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": sts.URL} {
		t.Setenv(name, value)
	}
	store := &fakeStore{}
	signed := signatures(store)
	if err := by(t, store, Workload("eu-central-1")).Fetch(t.Context(), store.put("k", "content"), "", (&sourcetest.Sink{}).Begin); err != nil {
		t.Fatal(err)
	}
	if got := (*signed)[0]; !strings.Contains(got, "Credential=ROLE/") {
		t.Errorf("signed with %s", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What the agent says goes to nobody but the log.
func TestAWorkloadWithoutCredentials(t *testing.T) {
	alone(t)
	agent(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"code":"x","message":"`+testSecret+`"}`, http.StatusBadRequest)
	})
	store := &fakeStore{}
	s := by(t, store, Workload("eu-central-1"))
	err := s.Fetch(t.Context(), store.put("k", "content"), "", (&sourcetest.Sink{}).Begin)
	p := problem.Of(err)
	if p.Title != "StoreForbidden" || !strings.Contains(p.Detail, "the node's daemon has no credentials for it") || strings.Contains(p.Detail, testSecret) {
		t.Errorf("got %v", p)
	}
	if _, err := s.Forward(forwarded(t, http.MethodGet, "/inputs/k", "", "")); err == nil {
		t.Error("forwarded without credentials")
	}
	if len(store.requests) != 0 {
		t.Errorf("requests %q", store.requests)
	}
}

func TestAnonymousRequestsAreNotSigned(t *testing.T) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "the daemon's own")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the daemon's own")
	store := &fakeStore{}
	signed := signatures(store)
	s := by(t, store, Anonymous())
	if err := s.Fetch(t.Context(), store.put("k", "content"), "", (&sourcetest.Sink{}).Begin); err != nil {
		t.Fatal(err)
	}
	r := forwarded(t, http.MethodGet, "/inputs/k", "", "")
	r.Header.Set("Authorization", "the program's")
	res, err := s.Forward(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	for _, got := range *signed {
		if got != " " {
			t.Errorf("signed with %s", got)
		}
	}
	if len(*signed) != 2 {
		t.Errorf("%d requests", len(*signed))
	}
}
