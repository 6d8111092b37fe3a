package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogsOfFunctionsAreApart(t *testing.T) {
	l, err := openLogs(filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(l.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v, want it closed to others", info, err)
	}
	seen := map[string]string{}
	for _, function := range []string{"a/b", "a/b-c", "a-b/c", "../../etc/passwd", ".."} {
		path := l.path(function)
		if filepath.Dir(path) != l.dir {
			t.Errorf("the log of %q is %s", function, path)
		}
		if other, taken := seen[path]; taken {
			t.Errorf("%q and %q share a log", function, other)
		}
		seen[path] = function
	}
}

// A log over the limit starts anew, for the program that has it open, too.
func TestLogsAreTrimmed(t *testing.T) {
	l, err := openLogs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{"default/quiet": logLimit, "default/loud": logLimit + 1}
	for function, size := range sizes {
		if err := os.WriteFile(l.path(function), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(l.path(function), size); err != nil { // sparse: the disk is spared
			t.Fatal(err)
		}
	}
	shim, err := os.OpenFile(l.path("default/loud"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	if err := l.trim(); err != nil {
		t.Fatal(err)
	}
	if _, err := shim.WriteString("next line\n"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(l.path("default/quiet")); err != nil || info.Size() != logLimit {
		t.Errorf("a log within the limit: %v, %v", info, err)
	}
	if got, err := os.ReadFile(l.path("default/loud")); string(got) != "next line\n" {
		t.Errorf("the trimmed log is %q, %v", got, err)
	}
}

// What an instance has logged last begins where its sandbox was made, and survives that the log
// is emptied.
func TestTheEndOfALog(t *testing.T) {
	l, err := openLogs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const function = "default/fire"
	if got := l.end(function, l.size(function)); got != "" {
		t.Errorf("without a log: %q", got)
	}
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(l.path(function), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("an earlier one\n")
	mark := l.size(function)
	if got := l.end(function, mark); got != "" {
		t.Errorf("of one that is silent: %q", got)
	}
	write("this one\n")
	if got := l.end(function, mark); got != "this one\n" {
		t.Errorf("since it was made: %q", got)
	}
	if err := os.Truncate(l.path(function), 0); err != nil {
		t.Fatal(err)
	}
	write("again\n")
	if got := l.end(function, mark); got != "again\n" {
		t.Errorf("after the log was emptied: %q", got)
	}
	write(strings.Repeat("x", endMost) + "end")
	if got := l.end(function, 0); len(got) != endMost || !strings.HasSuffix(got, "end") {
		t.Errorf("of a long one %d bytes", len(got))
	}
}
