package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What daemons have not uploaded is counted, of all nodes: not what is abandoned, and not what has only begun.
func TestLeft(t *testing.T) {
	p := platform(t)
	if got, err := p.Left(); err != nil || len(got) != 0 {
		t.Errorf("nothing is there: %v, %v", got, err)
	}
	mkdir(t, p.state("cloud/writes"), p.state("edge/writes"), p.state("idle"))
	for name, size := range map[string]int{"cloud/writes/a": 3, "cloud/writes/a.write": 50, "cloud/writes/b": 4,
		"cloud/writes/b.write": 50, "cloud/writes/begun": 5, "edge/writes/abandoned.write": 50,
		"edge/writes/x.write.new": 50} {
		if err := os.WriteFile(p.state(name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.Left()
	if d := cmp.Diff([]Left{{"cloud", 2, 7}}, got); d != "" || err != nil {
		t.Error(err, d)
	}
	if err := os.WriteFile(filepath.Join(p.state("idle"), "writes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Left(); err == nil || len(got) != 1 {
		t.Errorf("of what cannot be read nothing is said: %v, %v", got, err)
	}
}
