package copying_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cache/copying"
)

func TestFilesAreCopiedAndCompared(t *testing.T) {
	dir, own := t.TempDir(), filepath.Join(t.TempDir(), "own")
	c := copying.New(dir, 10)
	put := func(key, content string) {
		t.Helper()
		from := filepath.Join(t.TempDir(), "from")
		if err := errors.Join(os.WriteFile(from, []byte(content), 0o600), c.Put(key, from)); err != nil {
			t.Fatal(err)
		}
	}
	put("a/1", "12345")
	put("b", "1234")
	if err := c.Get("a/1", own); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(own); string(got) != "12345" {
		t.Errorf("%q", got)
	}
	put("c", "123") // there is room for two: b was used longest ago
	if err := c.Get("b", own); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("%d files are left", len(left))
	}
	put("d/1", "1")
	if err := errors.Join(c.Drop("d/"), c.Drop("e/")); err != nil || c.Has("d/1") || !c.Has("c") {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); c.Serve(l) }()
	from := func(key string) error {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return copying.From(conn, key, own)
	}
	if err := from("c"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c"), []byte("124"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Get("c", own), from("c")); !errors.Is(err, copying.ErrCorrupt) {
		t.Error(err)
	}
	_ = l.Close()
	<-served
}
