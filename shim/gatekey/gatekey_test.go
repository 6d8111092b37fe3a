package gatekey

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, file string) *Keys {
	t.Helper()
	k, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// file is where a node that has had keys for long keeps them.
func file(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "keys.json") }

func TestAKeyIsOneFunctionsOnOneNode(t *testing.T) {
	here, there := open(t, file(t)), open(t, file(t))
	key := here.Of("default/video")
	if !here.Valid("default/video", key) {
		t.Error("a function's key is refused")
	}
	for name, valid := range map[string]bool{
		"another function's":  here.Valid("default/thumbs", key),
		"another node's":      there.Valid("default/video", key),
		"a part of it":        here.Valid("default/video", key[:len(key)-1]),
		"that of no function": here.Valid("", key),
	} {
		if valid {
			t.Errorf("%s: is taken", name)
		}
	}
}

// A node that is new to keys has gateways that have none; one that has had keys never again takes a
// request without.
func TestRequestsWithoutAKey(t *testing.T) {
	at := file(t)
	synctest.Test(t, func(t *testing.T) {
		k := open(t, at)
		if !k.Valid("default/video", "") {
			t.Error("a request without a key is refused at once")
		}
		time.Sleep(grace)
		if k.Valid("default/video", "") {
			t.Errorf("a request without a key is taken after %v", grace)
		}
		if open(t, at).Valid("default/video", "") {
			t.Error("a request without a key is taken after a restart")
		}
	})
}

// Gateways go on with the key that they have while a daemon restarts, or says the next one.
func TestKeysOutliveRestartsAndRotate(t *testing.T) {
	at := file(t)
	synctest.Test(t, func(t *testing.T) {
		first := open(t, at)
		old := first.Of("default/video")
		k := open(t, at)
		if !k.Valid("default/video", old) || k.Of("default/video") != old {
			t.Error("a restarted daemon has another key")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int32
		var wg sync.WaitGroup
		wg.Go(func() { k.Run(ctx, func() error { told.Add(1); return nil }, slog.New(slog.DiscardHandler)) })
		time.Sleep(life + time.Second)
		synctest.Wait()
		if told.Load() != 1 || k.Of("default/video") == old || !k.Valid("default/video", old) {
			t.Errorf("after an hour: told %d times, the key is the same: %v, the last one counts: %v",
				told.Load(), k.Of("default/video") == old, k.Valid("default/video", old))
		}
		if first.Of("default/video") != k.Of("default/video") {
			t.Error("two daemons of a node have different keys")
		}
		time.Sleep(2 * life)
		synctest.Wait()
		if k.Valid("default/video", old) {
			t.Error("a key counts for longer than two hours")
		}
		cancel()
		wg.Wait()
	})
}

func TestADamagedFileIsNamed(t *testing.T) {
	at := file(t)
	if err := os.WriteFile(at, []byte(`{"current":"c2hvcnQ="}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(at); err == nil || !strings.Contains(err.Error(), at+" is damaged; remove it") {
		t.Error(err)
	}
}

// Gateways have a key for themselves, which is no function's, and which they read from a file.
func TestGatewaysHaveAKeyOfTheirOwn(t *testing.T) {
	secret, at := file(t), file(t)
	synctest.Test(t, func(t *testing.T) {
		k := open(t, secret)
		read := func() string {
			if err := k.WriteFile(at, os.Getuid()); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		first := read()
		for what, admitted := range map[string]bool{"no key": k.Admits(""), "a function's": k.Admits(k.Of("default/video")),
			"as a function's": k.Valid("default/video", first), "another node's": open(t, filepath.Join(t.TempDir(), "k")).Admits(first)} {
			if admitted {
				t.Errorf("%s is taken", what)
			}
		}
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o600 || !k.Admits(first) {
			t.Errorf("the file: %v, %v; its key counts: %v", info.Mode(), err, k.Admits(first))
		}
		time.Sleep(life)
		if second := read(); second == first || !k.Admits(second) || !k.Admits(first) {
			t.Errorf("after an hour: %q, then %q", first, second)
		}
		time.Sleep(life)
		if k.Admits(first) {
			t.Error("a key counts for longer than two hours")
		}
	})
}

func TestOnlyTheDaemonReadsTheSecrets(t *testing.T) {
	at := file(t)
	open(t, at)
	info, err := os.Stat(at)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}
