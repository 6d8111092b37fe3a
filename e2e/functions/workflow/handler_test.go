package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deploy has all functions behind a gateway, which takes note of the hosts that are called.
func deploy(t *testing.T, env map[string]string) (url string, hosts *sync.Map) {
	t.Helper()
	hosts = new(sync.Map)
	var functions http.Handler
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts.Store(r.Host, true)
		w.Header().Set("x-headstart-request", "id of "+r.Host)
		if strings.HasPrefix(r.Host, "part") {
			r.URL.Path = "/receive"
		}
		functions.ServeHTTP(w, r)
	}))
	t.Cleanup(gateway.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	all := map[string]string{"WORKFLOW_GATEWAY": strings.TrimPrefix(gateway.URL, "http://")}
	for k, v := range env {
		all[k] = v
	}
	functions = newHandler(func(name string) string { return all[name] })
	return gateway.URL, hosts
}

func order(t *testing.T, url string, o step.Order) (s step.Sent, got step.Received) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/send", "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(s.Answer, &got); err != nil {
		t.Fatalf("%d %s: %v", s.Status, s.Answer, err)
	}
	return s, got
}

func TestDataIsPassedOn(t *testing.T) {
	url, _ := deploy(t, nil)
	for _, seed := range []uint64{1, 2} {
		s, got := order(t, url, step.Order{Content: content.Noise, Size: 100_000, Seed: seed, Passing: step.Direct, To: "b", Path: "/receive"})
		want, err := content.Digest(content.Noise, 100_000, seed)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status != http.StatusOK || got.SHA256 != want || got.Bytes != 100_000 || s.Request != "id of b" {
			t.Errorf("seed %d: %+v", seed, s)
		}
		if s.At.IsZero() || got.Done.Before(s.At) || s.Answered.Before(got.Done) || !strings.Contains(s.Timing, `desc="body"`) {
			t.Errorf("its times are sent %v, done %v, answered %v, %q", s.At, got.Done, s.Answered, s.Timing)
		}
	}
}

func TestAVideoFansOutAndIn(t *testing.T) {
	url, hosts := deploy(t, map[string]string{"WORKFLOW_TARGETS": "part0 part1 part2", "WORKFLOW_PASSING": "direct"})
	s, got := order(t, url, step.Order{Content: content.Video, Size: 1_000_000, Seed: 1, Passing: step.Direct, To: "decoder", Path: "/decode"})
	video, err := content.Make(content.Video, 1_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	parts := content.Split(video, 3)
	if s.Status != http.StatusOK || len(got.Parts) != len(parts) {
		t.Fatalf("%d: %d parts", s.Status, len(got.Parts))
	}
	for n, sent := range got.Parts {
		var part step.Received
		if err := json.Unmarshal(sent.Answer, &part); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(parts[n])); part.SHA256 != want || sent.Request != fmt.Sprintf("id of part%d", n) {
			t.Errorf("part %d is %+v", n, sent)
		}
	}
	if _, ok := hosts.Load("part2"); !ok {
		t.Error("one was not called")
	}
}

// A stored input is named by headers, and is in a file where that has been seen to.
func TestAStoredInputIsAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "7"), []byte("the object"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, _ := deploy(t, map[string]string{"HEADSTART_INPUT_DIR": dir})
	r, err := http.NewRequest(http.MethodPost, url+"/receive", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, input.HeaderFile: {filepath.Join(dir, "7")}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got step.Received
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte("the object"))); got.SHA256 != want || !strings.Contains(resp.Header.Get("Server-Timing"), `desc="file"`) {
		t.Errorf("%+v, %v", got, resp.Header)
	}
}

func TestWhatIsNoOrderIsRefused(t *testing.T) {
	url, _ := deploy(t, nil)
	for path, body := range map[string]string{"/send": "oops", "/decode": "no video", "/receive": ""} {
		resp, err := http.Post(url+path, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
