package edit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/install/edit"
)

const body = "[plugins.x]\n  a = 1\n"

func TestAppendAndStrip(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"empty":         {"", "# headstart: begin\n" + body + "# headstart: end\n"},
		"lines":         {"a = 1\n", "a = 1\n# headstart: begin\n" + body + "# headstart: end\n"},
		"no line break": {"a = 1", "a = 1\n# headstart: begin, joined\n" + body + "# headstart: end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := edit.Append([]byte(tt.text), body)
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("appended (-want +got):\n%s", diff)
			}
			back, found, err := edit.Strip(got)
			if string(back) != tt.text || !found || err != nil {
				t.Errorf("stripped %q, %v, %v; want %q", back, found, err, tt.text)
			}
		})
	}
}

// Others edit around our part, and with editors that write CR LF.
func TestStripLeavesWhatOthersAdd(t *testing.T) {
	text := "a = 1\r\n# headstart: begin\r\nours = 1\r\n# headstart: end\r\nb = 2\r\n"
	got, found, err := edit.Strip([]byte(text))
	if string(got) != "a = 1\r\nb = 2\r\n" || !found || err != nil {
		t.Errorf("stripped %q, %v, %v", got, found, err)
	}
}

func TestStripOfHalfAMarkChangesNothing(t *testing.T) {
	_, _, err := edit.Strip([]byte("a = 1\n# headstart: begin\nours = 1\nb = 2\n"))
	if !errors.Is(err, edit.ErrUnfinished) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want one that names line 2", err)
	}
}

func TestImport(t *testing.T) {
	const mark, end = "\n# headstart: begin, joined\n\"/x\",\n", "# headstart: end\n"
	for name, tt := range map[string]struct{ text, want string }{
		"none":          {"version = 3\n", "# headstart: begin\nimports = [\"/x\"]\n# headstart: end\nversion = 3\n"},
		"empty":         {"imports = []\n", "imports = [" + mark + end + "]\n"},
		"one":           {"imports = ['/a']\n", "imports = [" + mark + end + "'/a']\n"},
		"lines":         {"a = 1\n imports=[\n  '/a',\n]\n", "a = 1\n imports=[" + mark + end + "\n  '/a',\n]\n"},
		"quoted key":    {"\"imports\" = ['/a']\n", "\"imports\" = [" + mark + end + "'/a']\n"},
		"of a table":    {"[t]\nimports = ['/a']\n", "# headstart: begin\nimports = [\"/x\"]\n# headstart: end\n[t]\nimports = ['/a']\n"},
		"in a comment":  {"# imports = [\nversion = 3\n", "# headstart: begin\nimports = [\"/x\"]\n# headstart: end\n# imports = [\nversion = 3\n"},
		"no last break": {"imports = []", "imports = [" + mark + end + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := edit.Import([]byte(tt.text), "/x")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("imported (-want +got):\n%s", diff)
			}
			if back, _, err := edit.Strip(got); string(back) != tt.text || err != nil {
				t.Errorf("stripped %q, %v; want %q", back, err, tt.text)
			}
		})
	}
}

func TestParseNamesTheLine(t *testing.T) {
	_, err := edit.Parse([]byte("a = 1\nb = \n"))
	if e, ok := errors.AsType[*edit.SyntaxError](err); !ok || e.Line != 2 {
		t.Errorf("error %v, want one of line 2", err)
	}
}

func TestLine(t *testing.T) {
	text := "a = 1\n[plugins.cri]\nb = 2\n[plugins.cri.containerd.runtimes.headstart]\n"
	for path, want := range map[string]int{"a": 1, "plugins": 2, "plugins.cri.b": 3, "plugins.cri.containerd.runtimes.headstart": 4, "none": 0} {
		if got := edit.Line([]byte(text), strings.Split(path, ".")...); got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
}

// What is put in can always be taken out, to the byte.
func FuzzStripUndoes(f *testing.F) {
	nodes, err := filepath.Glob("../testdata/*.node")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range nodes {
		text, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		_, config, _ := strings.Cut(string(text), ".toml --\n")
		f.Add([]byte(config))
	}
	f.Add([]byte("imports = [\n#]\n'x' # [\n,]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), "# headstart:") {
			_, _, _ = edit.Strip(text)
			return
		}
		for _, edited := range [][]byte{edit.Append(text, body), imported(text)} {
			back, found, err := edit.Strip(edited)
			if string(back) != string(text) || found != (string(edited) != string(text)) || err != nil {
				t.Errorf("%q became %q, %v, %v", text, back, found, err)
			}
		}
		_, _ = edit.Parse(text)
		edit.Line(text, "plugins")
	})
}

// imported is text with an import, or text itself if it cannot have one.
func imported(text []byte) []byte {
	edited, err := edit.Import(text, "/x")
	if err != nil {
		return text
	}
	return edited
}
