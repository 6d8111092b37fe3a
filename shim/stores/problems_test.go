package stores

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A secret's fault is told by the names of store and secret, and without its content.
func TestProblemsOfSecrets(t *testing.T) {
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(status.Load()); code != http.StatusOK {
			w.WriteHeader(code)
			_, _ = w.Write(
				[]byte(
					"<Error><Code>InvalidAccessKeyId</Code><Message>" + r.Header.Get("Authorization") + "</Message></Error>",
				),
			)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Range", "bytes 0-4/5")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write([]byte("input"))
	}))
	t.Cleanup(server.Close)
	s, dir := newStores(t)
	path := filepath.Join(dir, "edge")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	want := func(words ...string) {
		t.Helper()
		problems := s.problems(t.Context()).GetProblems()
		if len(words) == 0 && len(problems) > 0 || len(words) > 0 && (len(problems) != 1 || problems[0].GetStore() != "edge") {
			t.Fatalf("got %v, want %q", problems, words)
		}
		for _, w := range words {
			if said := problems[0].GetMessage(); !strings.Contains(said, w) || strings.Contains(said, "AKIDEXAMPLE") || strings.Contains(said, "wJalrXUtnFEMI") {
				t.Errorf("%q, want %q and nothing of the secret", said, w)
			}
		}
	}
	s.Set([]*nodeapi.Store{edge(server.URL), {Name: "open", Kind: "http", Buckets: []string{"files.example.com"}}})
	want(`secret "edge"`, "no such file")
	write(accessKey, 0o644)
	want(`secret "edge"`, "0644")
	write("access_key_id = AKIDEXAMPLE\nwJalrXUtnFEMI\n", 0o600)
	want(`secret "edge"`, "line 2")
	write("access_key_id = AKIDEXAMPLE\n", 0o600)
	want(`secret "edge"`, "secret_access_key are required")
	write(accessKey, 0o600)
	want()
	for _, in := range []struct {
		status int
		words  []string
	}{
		{http.StatusOK, nil},
		{http.StatusForbidden, []string{"refuses the node", "InvalidAccessKeyId"}},
		{http.StatusBadRequest, []string{"InvalidAccessKeyId"}},
		{http.StatusOK, nil},
		{http.StatusForbidden, []string{"InvalidAccessKeyId"}},
		{http.StatusNotFound, []string{"InvalidAccessKeyId"}},
	} {
		status.Store(int64(in.status))
		_ = fetch(t, s) // what becomes of it is another test's
		want(in.words...)
	}
	s.Set(nil)
	want()
}

func TestProblemsOfADirectoryThatIsNotThere(t *testing.T) {
	s, err := Open("/not/there", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Set([]*nodeapi.Store{edge("http://one.example")})
	if got := s.problems(t.Context()).GetProblems(); len(got) != 1 || !strings.Contains(
		got[0].GetMessage(), "--secrets-dir: open /not/there",
	) {
		t.Errorf("got %v", got)
	}
}

// Problems are told when they come and when they go, once each.
func TestProblemsAreToldWhenTheyChange(t *testing.T) {
	s, dir := newStores(t)
	s.Set([]*nodeapi.Store{edge("http://one.example")})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		told, ended := make(chan int, 100), make(chan struct{})
		go func() {
			defer close(ended)
			s.Watch(ctx, func(m *nodeapi.StoreProblems) { told <- len(m.GetProblems()) }, slog.New(slog.DiscardHandler))
		}()
		if n := <-told; n != 1 {
			t.Errorf("%d problems at first", n)
		}
		time.Sleep(10*lookEvery + lookEvery/2) // and not when it looks, or it may see half of the secret
		if err := os.WriteFile(filepath.Join(dir, "edge"), []byte(accessKey), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := <-told; n != 0 {
			t.Errorf("%d problems with a good secret", n)
		}
		cancel()
		<-ended
		if n := len(told); n > 0 {
			t.Errorf("told %d times more", n)
		}
	})
}

// A store that needs no secret is not said to lack one.
func TestStoresWithoutASecretHaveNoProblem(t *testing.T) {
	s, _ := newStores(t)
	var all []*nodeapi.Store
	for _, credentials := range []string{"workload", "anonymous"} {
		c := edge("http://one.example:900")
		c.Name, c.Secret, c.Credentials = credentials, "", credentials
		all = append(all, c)
	}
	unknown := edge("http://one.example:900")
	unknown.Secret, unknown.Credentials = "", "by-magic"
	s.Set(append(all, unknown))
	got := s.problems(t.Context()).GetProblems()
	if len(got) != 1 || got[0].GetStore() != "edge" || !strings.Contains(got[0].GetMessage(), "by-magic") {
		t.Errorf("problems are %v", got)
	}
}
