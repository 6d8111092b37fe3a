//go:build integration

package objects_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/powertest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const (
	// crashesEnv is how many crashes there are, three of four by a signal; 200 unless it says otherwise.
	crashesEnv = "HEADSTART_CRASHES"
	// crashDirEnv and crashRoundEnv make this program a daemon that keeps objects until it is killed.
	crashDirEnv, crashRoundEnv = "HEADSTART_CRASH_DIR", "HEADSTART_CRASH_ROUND"
)

func init() {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		round, _ := strconv.Atoi(os.Getenv(crashRoundEnv))
		fmt.Println("ends", keepUntilKilled(dir, round))
		os.Exit(1)
	}
}

// made is a store whose objects follow from their names. Those that are asked for each time change.
type made struct {
	namespace string
	round     int
}

func (m *made) Identity() string { return "made" }

func (m *made) version(ref source.Reference) string {
	if ref.Bucket == "fresh" {
		return "1"
	}
	return fmt.Sprint((m.round + len(ref.Key)) / 4)
}

// contentOf says in each line whose it is.
func contentOf(namespace, reference, version string) []byte {
	seed := rand.New(rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%32.32s", reference)))))
	b := bytes.Repeat([]byte(namespace+" "+reference+" "+version+"\n"), 1+seed.IntN(8000))
	if seed.IntN(8) == 0 {
		b = bytes.Repeat(b, 16)
	}
	return b
}

func (m *made) Fetch(ctx context.Context, ref source.Reference, held string, begin func(source.Object) (io.WriterAt, error)) error {
	if held == m.version(ref) {
		return &source.Unchanged{}
	}
	b := contentOf(m.namespace, ref.String(), m.version(ref))
	to, err := begin(source.Object{Size: int64(len(b)), Version: m.version(ref)})
	if err != nil {
		return err
	}
	for at := 0; at < len(b); at += 64 << 10 {
		if _, err := to.WriteAt(b[at:min(len(b), at+64<<10)], int64(at)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// told prints what is evicted.
type told struct{}

func (told) Ended(objects.Outcome) {}
func (told) Evicted(why string)    { fmt.Println("evicted", why) }

// keepUntilKilled has requests of two namespaces keep objects, and prints what each got.
func keepUntilKilled(dir string, round int) error {
	files, err := buffer.OpenFiles(dir)
	if err != nil {
		return err
	}
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: 8 << 20, Medium: files})
	from := map[string]source.Source{"a": &made{"a", round}, "b": &made{"b", round}}
	c := objects.New(objects.Config{Buffer: b, Age: time.Hour, Metrics: told{},
		Sources: func(function, _ string) (source.Source, error) { return from[function[:1]], nil },
		Rule: func(_, bucket string) objects.Rule {
			return objects.Rule{Fresh: map[string]time.Duration{"fresh": time.Hour}[bucket]}
		}})
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				namespace, ref := []string{"a", "b"}[rand.IntN(2)], fmt.Sprintf("s3://%s/%d", []string{"fresh", "ask"}[rand.IntN(2)], 1<<rand.IntN(24))
				i := c.Fetch(context.Background(), objects.Request{ID: fmt.Sprint(rand.Uint64()), Function: namespace + "/f", Store: "s", Reference: ref, Limit: 1 << 30})
				if err := reads(i, namespace, ref, from[namespace].(*made)); err != nil {
					failed <- err
				}
				i.Release()
			}
		}()
	}
	return <-failed
}

// reads prints what a request reads. An error is for what nobody expects.
func reads(i *objects.Input, namespace, ref string, m *made) error {
	ctx := context.Background()
	about, err := i.Object(ctx)
	if err != nil {
		fmt.Println("failed", err)
		return nil
	}
	r, err := i.NewReader(ctx)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close(), i.Wait(ctx)); err != nil {
		fmt.Println("failed", err)
		return nil
	}
	parsed, err := source.ParseReference(ref)
	other := map[string]string{"a": "b", "b": "a"}[namespace]
	switch want := contentOf(namespace, ref, about.Version); {
	case err != nil:
		return err
	case bytes.Contains(got, []byte(other+" s3://")):
		fmt.Println("cross", ref)
	case !bytes.Equal(got, want), about.Version != m.version(parsed):
		fmt.Println("corrupt", ref, about.Version)
	default:
		fmt.Println("read", namespace, ref)
	}
	return nil
}

// crashed is what daemons have printed that are killed.
type crashed struct{ reads, corrupt, cross, damage, evicted, failed, found int }

// daemon has one run until it is killed, after fault.
func (c *crashed) daemon(t *testing.T, dir string, round int, fault func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDirEnv+"="+dir, crashRoundEnv+"="+strconv.Itoa(round))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	notes, _ := filepath.Glob(dir + "/*.note")
	c.found += len(notes)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(20*time.Second, func() { _ = child.Process.Signal(unix.SIGQUIT) }) // it says where
	defer stuck.Stop()
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case what == "read":
			c.reads++
		case what == "corrupt":
			c.corrupt++
		case what == "cross":
			c.cross++
		case what == "evicted" && rest == objects.EvictedDamage:
			c.damage++
		case what == "evicted":
			c.evicted++
		case what == "failed":
			c.failed++
		case what == "ends":
			t.Fatalf("round %d: the daemon %s", round, lines.Text())
		}
		if first {
			first = false
			time.AfterFunc(rand.N(60*time.Millisecond), func() { // at any moment of its work
				_ = child.Process.Signal(unix.SIGSTOP) // nothing runs on without power
				fault()
				_ = child.Process.Kill()
			})
		}
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("round %d: the daemon was not killed: %v", round, err)
	}
}

func crashes(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv(crashesEnv))
	if err != nil {
		return 200
	}
	return n
}

// flipOne changes a byte of something that is kept.
func flipOne(t *testing.T, dir string) {
	t.Helper()
	notes, err := filepath.Glob(dir + "/*.note")
	if err != nil || len(notes) == 0 {
		return
	}
	file, err := os.OpenFile(strings.TrimSuffix(notes[rand.IntN(len(notes))], ".note"), os.O_RDWR, 0)
	if err != nil {
		return // a note alone
	}
	b := make([]byte, 1)
	_, err = file.ReadAt(b, 7)
	b[0] ^= 1
	if _, wrong := file.WriteAt(b, 7); errors.Join(err, wrong, file.Close()) != nil {
		t.Error(err, wrong)
	}
}

// Whenever a daemon is killed, and if what it keeps is damaged then: nobody reads anything but the object.
func TestKilledDaemons(t *testing.T) {
	dir := t.TempDir() + "/b"
	var c crashed
	for round := range crashes(t) * 3 / 4 {
		c.daemon(t, dir, round, func() {})
		if round%3 == 0 {
			flipOne(t, dir)
		}
	}
	t.Logf("%+v", c)
	if c.corrupt > 0 || c.cross > 0 || c.found == 0 || c.damage == 0 || c.evicted == 0 || c.reads == 0 {
		t.Errorf("%+v", c)
	}
}

// A power cut leaves any part of what was written. Sometimes a part of it has been synced before, by somebody else.
func TestPowerCuts(t *testing.T) {
	disk := powertest.Mount(t, "-o", "commit=1")
	dir := disk.Dir + "/b"
	var c crashed
	for round := range crashes(t) / 4 {
		c.daemon(t, dir, round, func() {
			synced := rand.IntN(3) == 0
			if notes, _ := filepath.Glob(dir + "/*.note"); !synced && len(notes) > 0 { // their content is not
				if note, err := os.Open(notes[rand.IntN(len(notes))]); err == nil {
					_ = errors.Join(note.Sync(), note.Close())
				}
			}
			disk.Cut(synced)
		})
		disk.Restore()
	}
	t.Logf("%+v", c)
	if c.corrupt > 0 || c.cross > 0 || c.found == 0 || c.damage == 0 || c.reads == 0 {
		t.Errorf("%+v", c)
	}
}
