package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever reaches the function's port can send any header. The sample opens a file of its input
// directory, and no other.
func TestAttackHeaderNamesAFileElsewhere(t *testing.T) {
	const secret = "hunter2"
	dir := t.TempDir()
	inputs := filepath.Join(dir, "input")
	if err := os.Mkdir(inputs, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"secret": secret, "input/request": "input"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HEADSTART_INPUT_DIR", inputs)
	ask := func(request string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/file", nil)
		r.Header.Set("x-headstart-request", request)
		file(w, r)
		return w
	}
	if w := ask("request"); w.Code != http.StatusOK {
		t.Errorf("its own file: %d %s", w.Code, w.Body)
	}
	for _, hostile := range []string{"../secret", filepath.Join(dir, "secret"), "..", "a/../../secret", ""} {
		if w := ask(hostile); w.Code == http.StatusOK || strings.Contains(w.Body.String(), secret) {
			t.Errorf("%q: %d %s", hostile, w.Code, w.Body)
		}
	}
}
