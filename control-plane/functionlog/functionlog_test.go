package functionlog

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write appends to a node's log of default/fire.
func write(t *testing.T, dir, node, text string) string {
	t.Helper()
	path := filepath.Join(dir, "nodes", node, "logs", "default.fire.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "edge", "one\ntwo\n\nthree\nno end")
	write(t, dir, "cloud", "far\n")
	long := strings.Repeat("x", chunk)
	for name, c := range map[string]struct {
		node, text string
		tail       int
		want       []string
	}{
		"all":         {tail: -1, want: []string{"cloud far", "edge one", "edge two", "edge ", "edge three", "edge no end"}},
		"the last":    {tail: 1, want: []string{"cloud far", "edge no end"}},
		"none":        {tail: 0},
		"more":        {tail: 100, want: []string{"cloud far", "edge one", "edge two", "edge ", "edge three", "edge no end"}},
		"a long line": {node: "moon", text: long + "yz\nlast\n", tail: 2, want: []string{"cloud far", "edge three", "edge no end", "moon " + long, "moon yz", "moon last"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.node != "" {
				path := write(t, dir, c.node, c.text)
				defer os.Remove(path)
			}
			var got []string
			err := Read(t.Context(), Options{Dir: dir, Function: "default/fire", Tail: c.tail}, func(node, line string) error {
				got = append(got, node+" "+line)
				return nil
			})
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Error(err, d)
			}
		})
	}
	for _, function := range []string{"default/other", "../default/fire", "*/*"} {
		if err := Read(t.Context(), Options{Dir: dir, Function: function, Tail: -1}, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of %s: %v", function, err)
		}
	}
}

// What is followed comes as it is written, from nodes that begin later and after the log was
// emptied, too.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "edge", "early\nold\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lines, ended := make(chan string), make(chan error)
	go func() {
		ended <- Read(ctx, Options{Dir: dir, Function: "default/fire", Tail: 1, Follow: true}, func(node, line string) error {
			lines <- node + " " + line
			return nil
		})
	}()
	want := func(line string) {
		t.Helper()
		if got := <-lines; got != line {
			t.Errorf("got %q, want %q", got, line)
		}
	}
	want("edge old")
	write(t, dir, "edge", "half")
	write(t, dir, "cloud", "far\n")
	want("cloud far")
	write(t, dir, "edge", " a line\n")
	want("edge half a line")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "edge", "again\n")
	want("edge again")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The last lines are those that reading all of it has last, wherever chunks end.
func TestLastLinesAreTheLastOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat("pad\n", rapid.IntRange(0, 2*chunk/4).Draw(t, "pad")) + rapid.StringMatching(`[ab\n]{0,40}`).Draw(t, "text")
		n := rapid.IntRange(0, 20).Draw(t, "n")
		from, err := lastLines(strings.NewReader(text), int64(len(text)), n)
		if err != nil {
			t.Fatal(err)
		}
		all := bytes.SplitAfter([]byte(text), []byte("\n"))
		if len(all[len(all)-1]) == 0 {
			all = all[:len(all)-1]
		}
		if want := bytes.Join(all[max(len(all)-n, 0):], nil); text[from:] != string(want) {
			t.Fatalf("the last %d of %d lines: %q, want %q", n, len(all), text[from:], want)
		}
	})
}
