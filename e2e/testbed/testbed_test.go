package testbed

import (
	"os"
	"testing"
)

// Two testbeds of one name would sweep each other away. What keeps them apart leaves no file.
func TestALockIsTakenOnceAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	first, err := takeLock("hslock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock("hslock"); err == nil || err.Error() != `another testbed "hslock" runs on this machine; wait for it, or end it` {
		t.Errorf("the second one: %v", err)
	}
	other, err := takeLock("hslock-2")
	if err != nil {
		t.Fatal(err)
	}
	again := first.Close()
	next, err := takeLock("hslock")
	if again != nil || err != nil {
		t.Fatalf("after its end: %v, %v", again, err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
