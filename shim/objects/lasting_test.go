package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/record"
	"github.com/headstart-mesh/headstart/shim/objects/site"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
)

// identified is a source of which a daemon knows the server again.
type identified struct {
	*sourcetest.Memory
	server string
}

func (s *identified) Identity() string { return s.server }

// host is where one daemon comes after the other.
type host struct {
	dir    string
	server string
	store  *sourcetest.Memory
	fresh  time.Duration
	age    time.Duration
	limit  int64
}

func newHost(t *testing.T) *host {
	h := &host{dir: t.TempDir() + "/b", server: "here", store: &sourcetest.Memory{}, age: age, limit: bufferLimit}
	h.store.Put(object, "text/plain", content)
	return h
}

// daemon begins another daemon of the host, in a directory. end ends it in order.
func (h *host) daemon(t *testing.T, dir string, succeeds string) (n *node, end func()) {
	t.Helper()
	files, err := buffer.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	buf := buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: h.limit, Medium: files})
	n = &node{store: h.store, buffer: buf, outcomes: make(chan objects.Outcome, 2000), evicted: map[string]int{}, fresh: h.fresh}
	from := &identified{h.store, h.server}
	cfg := objects.Config{Rule: n.rule, Buffer: buf, Age: h.age, Metrics: n,
		Sources: func(string, string) (source.Source, error) { return from, nil }}
	if succeeds != "" {
		cfg.Inherit = func() bool {
			err := files.Inherit(succeeds)
			if err != nil && !errors.Is(err, buffer.ErrInUse) {
				t.Error(err)
			}
			return err != nil
		}
	}
	n.Cache = objects.New(cfg)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		if err := errors.Join(n.Close(context.Background()), buf.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return n, end
}

// gets is what a request reads, or why not. Other bytes than the object's fail the test.
func (n *node) gets(t *testing.T, ref source.Reference, want []byte) (*objects.Input, error) {
	t.Helper()
	r := request(buffer.NewID())
	r.Reference = ref.String()
	i := n.Fetch(t.Context(), r)
	err := i.Wait(t.Context())
	if err != nil {
		return i, err
	}
	from, err := i.NewReader(t.Context())
	if err != nil {
		return i, err
	}
	got, err := io.ReadAll(from)
	if err = errors.Join(err, from.Close()); err == nil && !bytes.Equal(got, want) {
		t.Errorf("%s is corrupt", ref)
	}
	return i, err
}

func (n *node) damage() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.evicted[objects.EvictedDamage]
}

// killed is what is on the disk of a daemon that ends at once.
func (h *host) killed(t *testing.T) {
	t.Helper()
	dir := t.TempDir() + "/b"
	if err := errors.Join(os.CopyFS(dir, os.DirFS(h.dir)), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	h.dir = dir
}

// files are those of the directory whose names end so.
func (h *host) files(t *testing.T, suffix string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if _, has := strings.CutPrefix(f.Name()[min(32, len(f.Name())):], suffix); has && len(f.Name()) == 32+len(suffix) {
			names = append(names, filepath.Join(h.dir, f.Name()))
		}
	}
	return names
}

// noted waits until so many objects outlive the daemon.
func (h *host) noted(t *testing.T, many int) {
	t.Helper()
	for len(h.files(t, ".note")) != many {
		if t.Context().Err() != nil {
			t.Fatalf("%d notes, not %d", len(h.files(t, ".note")), many)
		}
		time.Sleep(time.Millisecond) // polls
	}
}

// says has the records say something else.
func (h *host) says(t *testing.T, change func(*record.Record)) {
	t.Helper()
	for _, path := range h.files(t, ".note") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		if b, err = r.Bytes(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// flip has one bit of what is kept be another.
func (h *host) flip(t *testing.T) {
	t.Helper()
	for _, path := range h.files(t, "") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What a node keeps outlives its daemon, however that ends, and damage is noticed before anybody reads it. After an
// orderly end nothing has to be read for that.
func TestKeptObjectsOutliveTheDaemon(t *testing.T) {
	for name, in := range map[string]struct {
		fresh   time.Duration
		between func(t *testing.T, h *host)
		kill    bool
		way     string
		damage  int
	}{
		"restarted":              {way: objects.WayRevalidated},
		"restarted, still fresh": {fresh: time.Hour, way: objects.WayHit},
		"killed":                 {kill: true, way: objects.WayRevalidated},
		"killed, still fresh":    {kill: true, fresh: time.Hour, way: objects.WayHit},
		"killed, and damaged":    {kill: true, fresh: time.Hour, between: func(t *testing.T, h *host) { h.flip(t) }, way: objects.WayStore, damage: 1},
		"cut off": {way: objects.WayStore, damage: 1, between: func(t *testing.T, h *host) {
			if err := os.Truncate(h.files(t, "")[0], size/2); err != nil {
				t.Error(err)
			}
		}},
		"restarted twice, killed before, and damaged": {kill: true, way: objects.WayStore, damage: 1, between: func(t *testing.T, h *host) {
			_, end := h.daemon(t, h.dir, "") // nobody asks it for the object
			end()
			h.flip(t)
		}},
		"another server": {way: objects.WayStore, between: func(_ *testing.T, h *host) { h.server = "there" }},
		"too old":        {way: objects.WayStore, between: func(_ *testing.T, h *host) { h.age = time.Nanosecond }},
		"the clock goes back": {fresh: time.Hour, way: objects.WayRevalidated, between: func(t *testing.T, h *host) {
			h.says(t, func(r *record.Record) { r.Asked = time.Now().Add(time.Minute) })
		}},
		"no record": {kill: true, way: objects.WayStore, between: func(t *testing.T, h *host) {
			if err := os.WriteFile(h.files(t, ".note")[0], []byte("headstart record 1\n{}"), 0o600); err != nil {
				t.Error(err)
			}
		}},
		"a note alone": {way: objects.WayStore, between: func(t *testing.T, h *host) {
			if err := os.Remove(h.files(t, "")[0]); err != nil {
				t.Error(err)
			}
		}},
		"an entry alone": {way: objects.WayStore, between: func(t *testing.T, h *host) {
			if err := os.Remove(h.files(t, ".note")[0]); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.fresh = in.fresh
			n, end := h.daemon(t, h.dir, "")
			n.once(t, "default/f", object, content)
			if in.kill {
				h.noted(t, 1)
				h.killed(t)
			}
			end()
			if in.between != nil {
				in.between(t, h)
			}
			n, end = h.daemon(t, h.dir, "")
			fetches, _ := n.counts()
			o := n.once(t, "default/f", object, content)
			if o.Way != in.way || (in.way == objects.WayStore) != (fetches.Load() == 1) {
				t.Errorf("%+v, %d fetches", o, fetches.Load())
			}
			if n.damage() != in.damage {
				t.Errorf("%d were damaged", n.damage())
			}
			end()
			if files, notes := h.files(t, ""), h.files(t, ".note"); h.age == age && (len(files) != 1 || len(notes) != 1) {
				t.Errorf("left: %v, %v", files, notes)
			}
		})
	}
}

// A version that is not held any more is not found again.
func TestOldVersionsEndWithTheDaemon(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	n.once(t, "default/f", object, content)
	h.noted(t, 1)
	old := h.files(t, ".note")[0]
	i := n.Fetch(t.Context(), request("reads"))
	if err := i.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // the entry stays until then
	i.Release()
	n.outcome(t)
	newer := bytes.Repeat([]byte("abcdefghij"), size/10)
	h.store.Put(object, "", newer)
	n.once(t, "default/f", object, newer)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("a killed daemon leaves the old one: %v", err)
	}
	end()
	n, _ = h.daemon(t, h.dir, "")
	if o := n.once(t, "default/f", object, newer); o.Way != objects.WayRevalidated {
		t.Errorf("%+v", o)
	}
	if files := h.files(t, ""); len(files) != 1 {
		t.Errorf("left: %v", files)
	}
}

// The attacker is a neighbour that knows a version of an object. The operator has taken its bucket off the list, and
// updated the daemon, which has the object of the daemon before.
func TestAttackANeighbourAsksForABucketOfBefore(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	n.once(t, "default/f", object, content)
	end()
	n, _ = h.daemon(t, h.dir, "")
	own := site.Own{Cache: n.Cache}
	version := n.List(func(objects.Key) bool { return true })[0].Version
	asks := func() bool {
		k, err := own.Name("default", "edge", object.String())
		if err != nil {
			return false
		}
		c, got := own.Held(t.Context(), "default", k, version)
		if got {
			_ = c.Close() // it is only read from
		}
		return got
	}
	if !asks() {
		t.Error("a neighbour does not get what the node has")
	}
	n.mu.Lock()
	n.delisted = true
	n.mu.Unlock()
	if asks() {
		t.Error("a neighbour gets what the operator does not list any more")
	}
}

// A neighbour hears what a block's digest was when the object came, and so finds out what has changed since.
func TestNeighboursHearTheDigestOfBefore(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	defer end()
	n.once(t, "default/f", object, content)
	h.noted(t, 1)
	h.flip(t)
	own := site.Own{Cache: n.Cache}
	k, err := own.Name("default", "edge", object.String())
	if err != nil {
		t.Fatal(err)
	}
	c, got := own.Held(t.Context(), "default", k, n.List(func(objects.Key) bool { return true })[0].Version)
	if !got {
		t.Fatal("the node does not have it")
	}
	defer c.Close()
	sum, whole, err := c.Block(t.Context(), 0)
	if sum != digest.OfBlock(content) || whole != size || err != nil {
		t.Errorf("%d bytes, %x, %v", whole, sum, err)
	}
	block := make([]byte, whole)
	if _, err := c.ReadAt(block, 0); err != nil || digest.OfBlock(block) == sum {
		t.Errorf("it has not changed: %v", err)
	}
	if _, _, err := c.Block(t.Context(), 1); err != io.EOF {
		t.Errorf("after the last block: %v", err)
	}
}

// Two that come at once while content is checked get it, or what is fetched in its place, by one fetch.
func TestOneCheckForAll(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	n.once(t, "default/f", object, content)
	h.noted(t, 1)
	h.killed(t)
	end()
	h.flip(t)
	n, _ = h.daemon(t, h.dir, "")
	fetches, _ := n.counts()
	var all []*objects.Input
	for _, id := range []string{"1", "2", "3", "4"} {
		all = append(all, n.Fetch(t.Context(), request(id)))
	}
	for _, i := range all {
		succeeds(t, i, content)
		i.Release()
	}
	if fetches.Load() != 1 || n.damage() != 1 {
		t.Errorf("%d fetches, %d were damaged", fetches.Load(), n.damage())
	}
}

// After an unclean end a few objects are read at a time, whatever requests ask for. One that is not in time for its
// request is there for the next.
func TestFewChecksAtATime(t *testing.T) {
	h := newHost(t)
	h.fresh, h.limit = time.Hour, 1<<30
	n, end := h.daemon(t, h.dir, "")
	large := bytes.Repeat([]byte("0123456789abcdef"), bufferLimit/16)
	var all []source.Reference
	for at := range 40 {
		all = append(all, source.Reference{Scheme: "s3", Bucket: "inputs", Key: fmt.Sprint(at)})
		h.store.Put(all[at], "", large)
		n.once(t, "default/f", all[at], large)
	}
	h.noted(t, len(all))
	h.killed(t)
	end()
	n, _ = h.daemon(t, h.dir, "")
	fetch := func(ref source.Reference, id string) *objects.Input {
		r := request(id)
		r.Reference = ref.String()
		return n.Fetch(t.Context(), r)
	}

	leave := n.Check()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	late := fetch(all[0], "late")
	if err := late.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request whose object waits for its check: %v", err)
	}
	late.Release()
	n.outcome(t)
	leave()

	var inputs []*objects.Input
	for _, ref := range all {
		inputs = append(inputs, fetch(ref, ref.Key))
	}
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		for _, i := range inputs {
			_ = i.Wait(t.Context())
		}
	}()
	stacks, most := make([]byte, 1<<20), 0
	for waits := true; waits; {
		most = max(most, bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("objects.(*Cache).verify(")))
		select {
		case <-fetched:
			waits = false
		default:
		}
	}
	if most > 4 { // one of them is the scrub's
		t.Errorf("%d objects are checked at a time", most)
	}
	for _, i := range inputs {
		if o := n.outcome(t); o.Way != objects.WayHit {
			t.Errorf("%+v", o)
		}
		i.Release()
	}
}

// A daemon that is updated hands what it keeps to the next one, which has begun before its end.
func TestTheNodesOtherDaemon(t *testing.T) {
	h := newHost(t)
	h.fresh = time.Hour
	old, endOld := h.daemon(t, h.dir, "")
	old.once(t, "default/f", object, content)
	next, endNext := h.daemon(t, h.dir+"-2", h.dir)
	other := source.Reference{Scheme: "s3", Bucket: "inputs", Key: "other"}
	h.store.Put(other, "", content)
	next.once(t, "default/f", other, content)
	old.once(t, "default/f", other, content)
	endOld()
	h.dir += "-2"
	h.noted(t, 2)
	fetches, _ := next.counts()
	for _, ref := range []source.Reference{object, other} {
		for next.once(t, "default/f", ref, content).Way != objects.WayHit {
			t.Error("fetched again")
		}
	}
	if fetches.Load() != 0 {
		t.Errorf("%d fetches", fetches.Load())
	}
	endNext()
	if files := h.files(t, ""); len(files) != 2 {
		t.Errorf("left: %v", files)
	}
}

// What changes while it is kept is noticed within a day.
func TestScrub(t *testing.T) {
	h := newHost(t)
	h.age = 100 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		n, end := h.daemon(t, h.dir, "")
		defer end()
		n.once(t, "default/f", object, content)
		time.Sleep(26 * time.Hour)
		if o := n.once(t, "default/f", object, content); o.Way != objects.WayRevalidated {
			t.Errorf("%+v", o)
		}
		h.flip(t)
		time.Sleep(26 * time.Hour)
		if n.damage() != 1 {
			t.Errorf("%d were damaged", n.damage())
		}
		if o := n.once(t, "default/f", object, content); o.Way != objects.WayStore {
			t.Errorf("%+v", o)
		}
	})
}

// What cannot be read any more fails one request.
func TestWhatCannotBeReadIsFetchedAgain(t *testing.T) {
	h := newHost(t)
	h.fresh = time.Hour
	n, end := h.daemon(t, h.dir, "")
	defer end()
	n.once(t, "default/f", object, content)
	for _, file := range h.files(t, "") {
		if err := os.Truncate(file, size/2); err != nil {
			t.Fatal(err)
		}
	}
	i, err := n.gets(t, object, content)
	i.Release()
	if o := n.outcome(t); o.Way != objects.WayHit || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half of the file is read with %v: %+v", err, o)
	}
	if n.damage() != 1 {
		t.Errorf("%d were damaged", n.damage())
	}
	if o := n.once(t, "default/f", object, content); o.Way != objects.WayStore {
		t.Errorf("%+v", o)
	}
}

// What nobody shall find any more does not come back with the next daemon, though somebody reads it to the end.
func TestWhatIsForgottenDoesNotComeBack(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, n *node, h *host){
		"dropped": func(_ *testing.T, n *node, _ *host) { n.Remove(func(objects.Key) bool { return true }) },
		"deleted": func(t *testing.T, n *node, h *host) {
			h.store.Delete(object)
			n.says(0)
			i := n.Fetch(t.Context(), request("deleted"))
			defer i.Release()
			if err := i.Wait(t.Context()); err == nil {
				t.Error("it is there")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.fresh = time.Hour
			n, end := h.daemon(t, h.dir, "")
			n.once(t, "default/f", object, content)
			h.noted(t, 1)
			i := n.Fetch(t.Context(), request("reads"))
			succeeds(t, i, content)
			forget(t, n, h)
			if notes := h.files(t, ".note"); len(notes) != 0 {
				t.Errorf("a killed daemon leaves %v", notes)
			}
			end()
			i.Release()
			n, _ = h.daemon(t, h.dir, "")
			if all := n.List(func(objects.Key) bool { return true }); len(all) != 0 {
				t.Errorf("the next daemon has %+v", all)
			}
		})
	}
}

// The operator may look at what has no digests yet.
func TestVerifyWithoutDigests(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	n.once(t, "default/f", object, content)
	h.noted(t, 1)
	end()
	h.says(t, func(r *record.Record) { r.Sums = nil })
	n, _ = h.daemon(t, h.dir, "")
	all, err := n.Verify(t.Context(), func(objects.Key) bool { return true })
	if err != nil || len(all) != 1 || all[0].Damaged {
		t.Errorf("%+v, %v", all, err)
	}
	if o := n.once(t, "default/f", object, content); o.Way != objects.WayRevalidated {
		t.Errorf("%+v", o)
	}
}

// Whatever order daemons end in, the answer counts that was given last.
func TestAnOlderVersionIsNotInherited(t *testing.T) {
	h := newHost(t)
	h.fresh = time.Hour
	older, endOlder := h.daemon(t, h.dir, "")
	older.once(t, "default/f", object, content)
	newer := bytes.Repeat([]byte("abcdefghij"), size/10)
	h.store.Put(object, "", newer)
	next, end := h.daemon(t, h.dir+"-2", "")
	next.once(t, "default/f", object, newer)
	end()
	next, _ = h.daemon(t, h.dir+"-2", h.dir)
	endOlder()
	h.noted(t, 0)
	h.dir += "-2"
	h.noted(t, 1)
	if o := next.once(t, "default/f", object, newer); o.Way != objects.WayHit {
		t.Errorf("%+v", o)
	}
}

// A daemon that may keep less than those before lets go of the rest, of what was asked for first.
func TestWhatIsFoundHasToFit(t *testing.T) {
	h := newHost(t)
	n, end := h.daemon(t, h.dir, "")
	for _, ref := range big(n, "a", 2) {
		n.once(t, "default/f", ref, make([]byte, bufferLimit/2))
	}
	end()
	h.limit /= 2
	n, end = h.daemon(t, h.dir, "")
	if tier := n.buffer.Tiers()[0]; tier.Kept != h.limit {
		t.Errorf("%+v", tier)
	}
	end()
	const many = 4096
	note := record.Record{Namespace: "default", Store: "edge", Source: h.server, Size: 1, Asked: time.Now(), Used: time.Now()}
	sum := digest.OfBlock([]byte("x"))
	note.Sums = sum[:]
	for at := range many + 4 {
		note.Reference = fmt.Sprint("s3://inputs/", at)
		b, err := note.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(h.dir, buffer.NewID())
		if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.WriteFile(path+".note", b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	h.limit = bufferLimit
	n, _ = h.daemon(t, h.dir, "")
	if tier := n.buffer.Tiers()[0]; tier.KeptEntries > many {
		t.Errorf("%+v", tier)
	}
}
