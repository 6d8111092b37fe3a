package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

const manifest = "apiVersion: serving.knative.dev/v1\nkind: Service\n"

func TestApplyAFile(t *testing.T) {
	var b backend
	file := filepath.Join(t.TempDir(), "service.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, "default/fire created\ncity/flood unchanged\n", "apply", "-f", file, "--run-dir", serve(t, &b))
	if b.applied != manifest {
		t.Errorf("applied %q", b.applied)
	}
}

// A warning is for people: scripts have it in the data.
func TestApplyWarns(t *testing.T) {
	b := backend{warnings: []string{"an input is too large"}}
	stdout, stderr, err := headstart(t, manifest, "apply", "-f", "-", "--run-dir", serve(t, &b))
	if err != nil || stderr != "warning: default/fire: an input is too large\n" || stdout != "default/fire created\ncity/flood unchanged\n" {
		t.Errorf("%v, %q, %q", err, stdout, stderr)
	}
}

func TestApplyStandardInput(t *testing.T) {
	var b backend
	stdout, _, err := headstart(t, manifest, "apply", "-f", "-", "-o", "json", "--run-dir", serve(t, &b))
	if err != nil {
		t.Fatal(err)
	}
	if b.applied != manifest {
		t.Errorf("applied %q", b.applied)
	}
	const want = `[
  {
    "function": "default/fire",
    "change": "created"
  },
  {
    "function": "city/flood",
    "change": "unchanged"
  }
]
`
	if d := cmp.Diff(want, stdout); d != "" {
		t.Error(d)
	}
}

func TestApplyErrors(t *testing.T) {
	refusal := &platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "ManifestRefused",
		Message: "document 1, line 3: function default/fire: spec.traffic: not supported\ndocument 2, line 9: metadata.name: is missing"}
	dir := t.TempDir()
	expectError(t, `required flag(s) "filename" not set`, "apply")
	expectError(
		t, `unexpected "fire.yaml"; -f names the manifest: headstart apply -f fire.yaml`, "apply", "-f", "-",
		"fire.yaml",
	)
	expectError(t, "open "+dir+"/none.yaml: no such file or directory", "apply", "-f", dir+"/none.yaml")
	expectError(t, "reading the manifest: read "+dir+": is a directory", "apply", "-f", dir)
	expectError(t, refusal.Message, "apply", "-f", "-", "--run-dir", serve(t, &backend{err: refusal}))
	expectError(t, "no control plane serves "+dir+"/admin.sock: start the platform by `headstart up`, or say by --run-dir where it runs", "apply", "-f", "-", "--run-dir", dir)
}

func TestDelete(t *testing.T) {
	var b backend
	expect(t, "default/fire deleted\ncity/flood deleted\n", "delete", "fire", "city/flood", "--run-dir", serve(t, &b))
	if d := cmp.Diff([]string{"default/fire", "city/flood"}, b.deleted); d != "" {
		t.Error(d)
	}
	expect(t, `[
  {
    "function": "default/fire",
    "change": "deleted"
  }
]
`, "delete", "fire", "-o", "json", "--run-dir", serve(t, &backend{}))
}

func TestDeleteErrors(t *testing.T) {
	expectError(t, "requires at least 1 arg(s), only received 0", "delete")
	b := &backend{err: &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: `function "default/flood" is not deployed`}}
	stdout, _, err := headstart(t, "", "delete", "fire", "flood", "more", "--run-dir", serve(t, b))
	if err == nil || err.Error() != `function "default/flood" is not deployed` {
		t.Error(err)
	}
	if stdout != "default/fire deleted\n" { // so much is done
		t.Errorf("printed %q", stdout)
	}
}

func TestOutputFormats(t *testing.T) {
	for _, args := range [][]string{{"apply", "-f", "-"}, {"delete", "fire"}, {"status"}, {"trace", "1"}, {"version"}} {
		expectError(t, `invalid argument "yaml" for "-o, --output" flag: the formats are: json`, append(args, "-o", "yaml")...)
	}
}

func TestImageImport(t *testing.T) {
	b := &backend{status: city()}
	dir := serve(t, b)
	archive := filepath.Join(dir, "none.tar")
	expectError(t, "open "+archive+": no such file or directory", "image", "import", archive, "--run-dir", dir)
	expectError(t, "no node is connected that could take the image; `headstart status` shows when one is", "image", "import", archive, "--run-dir", serve(t, &backend{}))
}
