package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// counts has the node count its fetches and its questions.
func (n *node) counts() (fetches, questions *atomic.Int32) {
	fetches, questions = &atomic.Int32{}, &atomic.Int32{}
	n.store.Before = func(_ context.Context, _ source.Reference, at int64) error {
		if at == 0 {
			fetches.Add(1)
		}
		return nil
	}
	n.store.Asked = func(context.Context, source.Reference) error { questions.Add(1); return nil }
	return fetches, questions
}

// once has one request have an object, from its beginning to its end.
func (n *node) once(t *testing.T, function string, ref source.Reference, want []byte) objects.Outcome {
	t.Helper()
	r := request(fmt.Sprint(time.Now().UnixNano()))
	r.Function, r.Reference = function, ref.String()
	i := n.Fetch(t.Context(), r)
	succeeds(t, i, want)
	to, dir := links(t)
	if err := i.Link(t.Context(), to, "input"); err != nil {
		t.Error(err)
	} else if got, err := os.ReadFile(dir + "/input"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file's bytes are others: %v", err)
	}
	i.Release()
	return n.outcome(t)
}

func (n *node) says(fresh time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh = fresh
}

// What a request has had fetched is there for the next one. The store is asked each time, and only a changed
// object is fetched, with the answer to the question.
func TestAKeptObjectIsNotFetchedAgain(t *testing.T) {
	n := start(t)
	fetches, questions := n.counts()
	for r, want := range []string{objects.WayStore, objects.WayRevalidated, objects.WayRevalidated} {
		if o := n.once(t, "default/f", object, content); o.Way != want || (o.Bytes == size) != (r == 0) {
			t.Errorf("request %d: %+v", r, o)
		}
	}
	newer := bytes.Repeat([]byte("abcdefghij"), size/10)
	n.store.Put(object, "text/plain", newer)
	if o := n.once(t, "default/g", object, newer); o.Way != objects.WayStore {
		t.Errorf("of a changed object: %+v", o)
	}
	n.store.Delete(object)
	i := n.Fetch(t.Context(), request("deleted"))
	failed(t, i, "InputNotFound", http.StatusNotFound, "headstart.dev/input")
	i.Release()
	if fetches.Load() != 2 || questions.Load() != 4 {
		t.Errorf("%d fetches, %d questions", fetches.Load(), questions.Load())
	}
}

// An answer holds as long as the operator says, or the store, if he leaves it to that.
func TestFresh(t *testing.T) {
	for name, in := range map[string]struct {
		rule, said         time.Duration
		soon, late         string // the ways of requests half a minute and two minutes after the first
		fetches, questions int32
	}{
		"ask":                  {objects.Ask, time.Hour, objects.WayRevalidated, objects.WayRevalidated, 1, 2},
		"a minute":             {time.Minute, 0, objects.WayHit, objects.WayRevalidated, 1, 1},
		"a minute, whatever":   {time.Minute, -1, objects.WayHit, objects.WayRevalidated, 1, 1},
		"a minute, as it says": {objects.ByStore, time.Minute, objects.WayHit, objects.WayRevalidated, 1, 1},
		"it says nothing":      {objects.ByStore, 0, objects.WayRevalidated, objects.WayRevalidated, 1, 2},
		"it says never":        {objects.ByStore, -1, objects.WayStore, objects.WayStore, 3, 0},
		"it says never, ask":   {objects.Ask, -1, objects.WayStore, objects.WayStore, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t)
				n.says(in.rule)
				n.store.Fresh = in.said
				fetches, questions := n.counts()
				n.once(t, "default/f", object, content)
				time.Sleep(30 * time.Second)
				if o := n.once(t, "default/f", object, content); o.Way != in.soon {
					t.Errorf("soon: %+v", o)
				}
				time.Sleep(90 * time.Second)
				if o := n.once(t, "default/f", object, content); o.Way != in.late {
					t.Errorf("late: %+v", o)
				}
				if fetches.Load() != in.fetches || questions.Load() != in.questions {
					t.Errorf("%d fetches, %d questions", fetches.Load(), questions.Load())
				}
			})
		})
	}
}

// big are objects of which the buffer has room for two.
func big(n *node, namespace string, many int) (all []source.Reference) {
	for i := range many {
		ref := source.Reference{Scheme: "s3", Bucket: "inputs", Key: fmt.Sprint(namespace, i)}
		n.store.Put(ref, "", make([]byte, bufferLimit/2))
		all = append(all, ref)
	}
	return all
}

// Inputs need no room that is kept: what was used last is kept last.
func TestKeptObjectsGoForInputs(t *testing.T) {
	n := start(t)
	fetches, _ := n.counts()
	want := make([]byte, bufferLimit/2)
	all := big(n, "a", 3)
	for _, at := range []int{0, 1, 0, 2, 0} { // 2 comes in place of 1
		n.once(t, "default/f", all[at], want)
	}
	if fetches.Load() != 3 || n.evicted[objects.EvictedInput] != 1 {
		t.Errorf("%d fetches, %v", fetches.Load(), n.evicted)
	}
	var inputs []*objects.Input
	for at := range 2 {
		r := request(fmt.Sprint("in use", at))
		r.Reference = all[at].String()
		inputs = append(inputs, n.Fetch(t.Context(), r))
		succeeds(t, inputs[at], want)
	}
	r := request("too many")
	r.Reference = all[2].String()
	full := n.Fetch(t.Context(), r)
	failed(t, full, "BufferFull", http.StatusInsufficientStorage, "")
	for _, i := range append(inputs, full) {
		i.Release()
	}
	if tier := n.buffer.Tiers()[0]; tier.Used != 0 || tier.Kept != bufferLimit || tier.KeptEntries != 2 {
		t.Errorf("%+v", tier)
	}
}

// What the store has no longer, the node has no longer.
func TestDeletedObjectsAreNotKept(t *testing.T) {
	n := start(t)
	n.once(t, "default/f", object, content)
	n.store.Delete(object)
	i := n.of("gone", "default/f", object)
	defer i.Release()
	if err := i.Wait(t.Context()); problem.ReasonOf(err) != problem.ReasonInputNotFound {
		t.Errorf("got %v", err)
	}
	if kept := n.buffer.Tiers()[0].Kept; kept != 0 {
		t.Errorf("%d bytes are kept of what the store does not have", kept)
	}
}

// An object that nobody has used for long goes.
func TestKeptObjectsGoWithAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.once(t, "default/f", object, content)
		time.Sleep(age - time.Minute)
		n.once(t, "default/f", object, content)
		time.Sleep(age - time.Minute)
		if kept := n.buffer.Tiers()[0].Kept; kept != size {
			t.Errorf("%d bytes are kept of what is in use", kept)
		}
		time.Sleep(2 * time.Minute)
		if kept := n.buffer.Tiers()[0].Kept; kept != 0 || n.evicted[objects.EvictedAge] != 1 {
			t.Errorf("%d bytes are kept of what nobody uses, %v", kept, n.evicted)
		}
	})
}

// What is kept after a request of one namespace nobody sees in another one, unless the operator calls the bucket
// shared.
func TestAttackAnotherNamespaceSeesNothingKept(t *testing.T) {
	for bucket, want := range map[string]int32{"inputs": 2, "shared": 1} {
		n := start(t)
		fetches, _ := n.counts()
		ref := source.Reference{Scheme: "s3", Bucket: bucket, Key: "video"}
		n.store.Put(ref, "", content)
		n.once(t, "victim/f", ref, content)
		n.once(t, "attacker/f", ref, content)
		if fetches.Load() != want {
			t.Errorf("bucket %s: the store sees %d fetches, want %d", bucket, fetches.Load(), want)
		}
	}
}

// A namespace that has many objects kept has those go, and not the few of others.
func TestAttackKeptObjectsOfANamespaceLeaveOthersTheirs(t *testing.T) {
	n := start(t)
	fetches, _ := n.counts()
	ref := source.Reference{Scheme: "s3", Bucket: "inputs", Key: "small"}
	n.store.Put(ref, "", content)
	n.once(t, "small/one", ref, content)
	for _, ref := range big(n, "flood", 10) {
		n.once(t, "flood/f", ref, make([]byte, bufferLimit/2))
	}
	before := fetches.Load()
	if o := n.once(t, "small/one", ref, content); o.Way != objects.WayRevalidated || fetches.Load() != before {
		t.Errorf("what another namespace has kept is gone: %+v", o)
	}
}

// A function that keeps a file open after its request cannot have it count for nobody: it would hold room that
// others are to have as soon as they need it.
func TestAttackOpenFilesAreNotKeptForNobody(t *testing.T) {
	n := start(t)
	i := n.Fetch(t.Context(), request("1"))
	succeeds(t, i, content)
	to, dir := links(t)
	if err := i.Link(t.Context(), to, "input"); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(dir + "/input")
	if err != nil {
		t.Fatal(err)
	}
	i.Release()
	if tier := n.buffer.Tiers()[0]; tier.Used != size || tier.Kept != 0 {
		t.Errorf("while the function has it open: %+v", tier)
	}
	n.once(t, "default/g", object, content) // which uses it all the same
	if tier := n.buffer.Tiers()[0]; tier.Used != size {
		t.Errorf("after another one has used it: %+v", tier)
	}
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the function reads %d bytes, %v", len(got), err)
	}
	_ = file.Close()
	for deadline := time.Now().Add(time.Minute); n.buffer.Used() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was closed still counts")
		}
	}
	if kept := n.buffer.Tiers()[0].Kept; kept != size {
		t.Errorf("%d bytes are kept", kept)
	}
}

// As much of the disk stays free as the operator wants, whoever else fills it.
func TestTheDiskStaysFree(t *testing.T) {
	files, err := buffer.OpenFiles(t.TempDir() + "/b")
	if err != nil {
		t.Fatal(err)
	}
	n := startOver(t, buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: bufferLimit, Spare: 100, Medium: files}))
	n.once(t, "default/f", object, content)
	if tier := n.buffer.Tiers()[0]; tier.Used+tier.Kept != 0 || n.evicted[objects.EvictedDisk] != 1 {
		t.Errorf("%+v, %v", tier, n.evicted)
	}
}

// Nothing is kept of a store whose configuration is another by now, nor where the operator wants nothing kept.
func TestNothingIsKept(t *testing.T) {
	n := start(t)
	n.says(365 * 24 * time.Hour)
	n.once(t, "default/f", object, content)
	before := n.store
	n.store = &sourcetest.Memory{} // by the same name
	newer := []byte("of the other store")
	n.store.Put(object, "", newer)
	n.once(t, "default/f", object, newer)
	n.store = before

	buf, err := buffer.Open(t.TempDir()+"/b", bufferLimit)
	if err != nil {
		t.Fatal(err)
	}
	none := &node{buffer: buf, store: n.store, outcomes: make(chan objects.Outcome, 10)}
	none.Cache = objects.New(objects.Config{Sources: none.source, Buffer: buf, Metrics: none})
	none.once(t, "default/f", object, content)
	if tier := buf.Tiers()[0]; tier.Used+tier.Kept != 0 {
		t.Errorf("%+v", tier)
	}
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
}

// Whatever comes in whatever order: each request gets the object as it is, and inputs and what is kept never take more
// than the buffer has.
func TestKeepingProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := start(t)
		const many = 4
		var versions [many]byte
		contents := func(k int) []byte { return bytes.Repeat([]byte{byte(k), versions[k]}, (k+1)*bufferLimit/16) }
		ref := func(k int) source.Reference {
			return source.Reference{Scheme: "s3", Bucket: "inputs", Key: fmt.Sprint(k)}
		}
		for k := range many {
			n.store.Put(ref(k), "", contents(k))
		}
		open := map[int]*objects.Input{}
		id := 0
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if tier := n.buffer.Tiers()[0]; tier.Used+tier.Kept > tier.Limit {
					rt.Errorf("%+v", tier)
				}
			},
			"put": func(rt *rapid.T) {
				k := rapid.IntRange(0, many-1).Draw(rt, "object")
				versions[k]++
				n.store.Put(ref(k), "", contents(k))
			},
			"fetch": func(rt *rapid.T) {
				k := rapid.IntRange(0, many-1).Draw(rt, "object")
				id++
				r := request(fmt.Sprint(id))
				r.Function = rapid.SampledFrom([]string{"a/f", "a/g", "b/f"}).Draw(rt, "function")
				r.Reference = ref(k).String()
				i := n.Fetch(t.Context(), r)
				if err := i.Wait(t.Context()); err != nil {
					if !buffer.IsFull(err) {
						rt.Error(err)
					}
				} else if got := read(t, i); !bytes.Equal(got, contents(k)) {
					rt.Errorf("object %d: the bytes are others", k)
				}
				open[id] = i
			},
			"release": func(rt *rapid.T) {
				for id, i := range open {
					i.Release()
					delete(open, id)
					break
				}
			},
		})
		for _, i := range open {
			i.Release()
		}
		if n.buffer.Used() != 0 {
			rt.Errorf("%d bytes are left", n.buffer.Used())
		}
	})
}

// What the node has, or is getting, can be had by its version without a question; other versions cannot.
func TestHeld(t *testing.T) {
	n := start(t)
	_, questions := n.counts()
	key := objects.Key{Namespace: "default", Store: "edge", Reference: object.String()}
	none := func(k objects.Key, version string) {
		t.Helper()
		if i, err := n.Held(t.Context(), k, version, "default/(peers)"); i != nil || !errors.Is(err, objects.ErrNotHeld) {
			t.Errorf("%+v %q: %v, %v", k, version, i, err)
		}
	}
	none(key, "1")
	n.once(t, "default/f", object, content)
	other := key
	other.Namespace = "other"
	none(other, "1")
	none(key, "2")
	none(key, "")
	i, err := n.Held(t.Context(), key, "1", "default/(peers)")
	if err != nil {
		t.Fatal(err)
	}
	succeeds(t, i, content)
	n.store.Put(object, "", []byte("newer"))
	n.once(t, "default/f", object, []byte("newer"))
	succeeds(t, i, content) // it stays as long as somebody has it
	i.Release()
	none(key, "1")
	if tier := n.buffer.Tiers()[0]; tier.Used != 0 || tier.KeptEntries != 1 || questions.Load() != 1 {
		t.Errorf("%+v, %d questions", tier, questions.Load())
	}
}
