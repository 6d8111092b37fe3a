package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// A journal is read whole or not at all, and the error says where it is.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"format":1,"installed":"1","layout":"debian","top":"/opt/headstart","files":[{"path":"/etc/a","before":{"sha256":"x","mode":420}}]}`))
	f.Add([]byte(`{"format":2,"installed":"9"}`))
	f.Add([]byte(`{"files":[{"path":"../../etc/shadow"}]}`))
	f.Add([]byte(`[]`))
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, stateDir), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxJournal {
			return
		}
		if err := os.WriteFile(filepath.Join(root, journalPath), data, 0o600); err != nil {
			t.Fatal(err)
		}
		node, err := tree.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		j, err := openJournal(node)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), journalPath) {
				t.Errorf("%v", err)
			}
		case j == nil:
			t.Error("nothing is installed")
		case j.Format > journalVersion:
			t.Errorf("format %d is read", j.Format)
		}
	})
}
