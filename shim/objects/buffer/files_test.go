package buffer_test

import (
	"os"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/buffertest"
)

func TestFilesConform(t *testing.T) {
	var dir string
	open := func(t *testing.T) buffer.Medium {
		dir = t.TempDir() + "/b"
		files, err := buffer.OpenFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	buffertest.Run(t, open, func(t *testing.T) int {
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	})
}
