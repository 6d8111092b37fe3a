package s3proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

const frame = 1000 // bytes

// learned has a function read one object for each of some cold requests, which their header names.
func (n *node) learned(function string, requests int) {
	for i := range requests {
		key, instance := fmt.Sprintf("frames/%d.jpg", i), fmt.Sprint("instance-", i)
		end := n.Foresee(function, instance, "/", http.Header{"X-Frame": {key}})
		n.foresight.read(function, instance, testStore, "s3://data/"+key, frame)
		end(true)
	}
}

// proven has a function that is known well enough for predictions.
func proven(t *testing.T, change func(*Config)) *node {
	t.Helper()
	n := start(t, change)
	n.learned(testFunction, 20)
	if all := n.Learned(testFunction)[testFunction]; len(all) == 0 || !all[0].Proven {
		t.Fatalf("learned: %+v", all)
	}
	return n
}

// foresee is a cold request for an object.
func (n *node) foresee(instance, key string) (end func(worked bool)) {
	return n.Foresee(testFunction, instance, "/", http.Header{"X-Frame": {key}})
}

// What the next cold request is going to read is fetched before the program asks, and counted by whether it did.
func TestForesight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := proven(t, nil)
		synctest.Wait()
		n.store.takeFetched()
		before := n.counts(t)
		for i, read := range []bool{true, false} {
			key, instance := fmt.Sprintf("frames/new-%d.jpg", i), fmt.Sprint("new-", i)
			n.store.put("data/"+key, make([]byte, frame), nil)
			end := n.foresee(instance, key)
			synctest.Wait()
			if fetched := n.store.takeFetched(); !slices.Equal(fetched, []string{"s3://data/" + key}) {
				t.Fatalf("the node fetches %q", fetched)
			}
			if read {
				sb := n.box(instance)
				n.says(time.Hour)
				if _, body := n.ask(sb, "GET", "/data/"+key, "", nil); len(body) != frame {
					t.Errorf("read as %d bytes", len(body))
				}
				if fetched := n.store.takeFetched(); len(fetched) > 0 {
					t.Errorf("the program has the node fetch %q", fetched)
				}
			}
			end(true)
		}
		after := n.counts(t)
		for name, want := range map[string]float64{
			"headstart_s3_predictions_total read": 1, "headstart_s3_predicted_bytes_total read": frame,
			"headstart_s3_predictions_total wasted": 1, "headstart_s3_predicted_bytes_total wasted": frame,
		} {
			if got := after[name] - before[name]; got != want {
				t.Errorf("%s grows by %v", name, got)
			}
		}
		n.box("warm").asked.Store(true)
		n.foresee("warm", "frames/warm.jpg")(true)
		n.foresee("cold", "elsewhere/../frames.jpg")(true)
		if fetched := n.store.takeFetched(); len(fetched) > 0 {
			t.Errorf("for an instance that has started, and a key that is none, the node fetches %q", fetched)
		}
	})
}

// Fetches of predictions end with their request, at whatever point they are, and their places are free then.
func TestForesightEndsWithTheRequest(t *testing.T) {
	for _, where := range []string{"asked", "halfway", "fetched", "waiting"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				var begun, ended atomic.Int32
				block := func(ctx context.Context, ref source.Reference) error {
					if !strings.Contains(ref.Key, "new") {
						return nil
					}
					begun.Add(1)
					<-ctx.Done()
					ended.Add(1)
					return ctx.Err()
				}
				switch where {
				case "halfway":
					n.store.halfway = block
				case "asked", "waiting":
					n.store.fetching = block
				}
				n.learned(testFunction, 20)
				synctest.Wait()
				n.store.takeFetched()
				var ends []func(bool)
				many, under := 1, 1
				if where == "waiting" { // one place is for another namespace
					many, under = foreseenMost+3, foreseenMost-1
				}
				for i := range many {
					key := fmt.Sprintf("frames/new-%d.jpg", i)
					n.store.put("data/"+key, make([]byte, frame), nil)
					ends = append(ends, n.foresee(fmt.Sprint("new-", i), key))
				}
				synctest.Wait()
				if fetched := n.store.takeFetched(); len(fetched) != under {
					t.Errorf("the node fetches %q", fetched)
				}
				slices.Reverse(ends)
				for _, end := range ends { // those that wait first
					end(true)
				}
				synctest.Wait()
				if began := begun.Load(); began != ended.Load() || (began == 0) != (where == "fetched") {
					t.Errorf("%d of %d fetches have ended", ended.Load(), began)
				}
				for range foreseenMost - 1 {
					leave, why := n.foresight.places.Try(testFunction, "fetches")
					if leave == nil {
						t.Fatal(why)
					}
					defer leave()
				}
			})
		})
	}
}

// A request that ends while the store answers about a prediction, sooner or later: nothing is left of it.
func TestForesightEndsWithAnAnswer(t *testing.T) {
	n := start(t, nil)
	n.learned(testFunction, 20)
	for i := range 50 {
		key := fmt.Sprintf("frames/%d.jpg", i)
		n.store.put("data/"+key, make([]byte, frame), nil)
		end := n.foresee(fmt.Sprint("again-", i), key)
		if i%2 == 0 { // another moment each time; nothing waits for it
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
		}
		n.foresight.read(testFunction, fmt.Sprint("again-", i), testStore, "s3://data/"+key, frame)
		end(true)
	}
	n.foresight.mu.Lock()
	defer n.foresight.mu.Unlock()
	if left := len(n.foresight.learners[testFunction].groups); left != 0 {
		t.Errorf("%d requests are left", left)
	}
}

// A node learns so many functions. Those go that were used least recently, and none that has requests.
func TestLearnersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		busy := n.foresee("busy", "frames/1.jpg") // the oldest of all
		n.foresight.read(testFunction, "busy", testStore, "s3://data/frames/1.jpg", frame)
		l := n.foresight.learners[testFunction]
		for i := range 2 * learnersMost {
			time.Sleep(time.Second)
			n.Foresee(fmt.Sprint("media/f", i), "instance", "/", nil)(true)
			if i == learnersMost/2 {
				n.Foresee("media/f0", "instance", "/", nil)(true) // and so it is used later than f1
			}
			if i == learnersMost {
				if all := n.Learned(""); !has(all, "media/f0") || has(all, "media/f1") {
					t.Error("another one has gone than the one that was used least recently")
				}
			}
			if many := len(n.Learned("")); many > learnersMost {
				t.Fatalf("there are %d", many)
			}
		}
		if n.foresight.learners[testFunction] != l || len(l.groups) != 1 {
			t.Error("the busy one has gone")
		}
		busy(true)
		if len(l.groups) != 0 || l.store != testStore {
			t.Errorf("after its request it is %+v", l)
		}
		n.Foresee("media/last", "instance", "/", nil)(true)
		if has(n.Learned(""), testFunction) {
			t.Error("it stays")
		}
	})
}

func has(all map[string][]learn.Template, function string) bool {
	_, has := all[function]
	return has
}

// With requests of as many functions as it learns, a node leaves further ones unlearned, and learns them later.
func TestAllLearnersAreBusy(t *testing.T) {
	n := start(t, nil)
	var ends []func(bool)
	for i := range learnersMost + 10 {
		ends = append(ends, n.Foresee(fmt.Sprint("media/f", i), "instance", "/", nil))
		n.foresight.read(fmt.Sprint("media/f", i), "instance", testStore, "s3://data/k", 1)
	}
	if many := len(n.Learned("")); many != learnersMost || has(n.Learned(""), fmt.Sprint("media/f", learnersMost)) {
		t.Errorf("there are %d", many)
	}
	for _, end := range ends {
		end(true)
	}
	n.Foresee(fmt.Sprint("media/f", learnersMost), "instance", "/", nil)(true)
	if many := len(n.Learned("")); many != learnersMost || !has(n.Learned(""), fmt.Sprint("media/f", learnersMost)) {
		t.Errorf("later there are %d", many)
	}
}

// What an instance reads counts while it has requests, and is forgotten with it.
func TestReadsOfAnInstance(t *testing.T) {
	n := start(t, nil)
	f := n.foresight
	f.read(testFunction, "a", testStore, "s3://data/k", 1) // nobody learns it
	if len(n.Learned("")) > 0 {
		t.Error("a read makes a learner")
	}
	first, second := n.foresee("a", "frames/1.jpg"), n.foresee("a", "frames/2.jpg")
	first(true)
	if f.learners[testFunction].groups["a"] == nil {
		t.Error("it ends with the first of its requests")
	}
	n.Release("a")
	if len(f.learners[testFunction].groups) > 0 {
		t.Error("an instance that is no more is there")
	}
	f.read(testFunction, "a", testStore, "s3://data/k", 1)
	second(true)
	many := make([]func(bool), learn.MaxRequests+1)
	for i := range many {
		many[i] = n.foresee("b", "frames/1.jpg")
	}
	slices.Reverse(many) // the one that is in no group ends first
	for i, end := range many {
		if f.learners[testFunction].groups["b"] == nil {
			t.Errorf("its group ends after %d requests", i)
		}
		end(true)
	}
	if len(f.learners[testFunction].groups) > 0 {
		t.Error("its group does not end")
	}
}

// What was learned outlives the daemon, and predicts at once.
func TestWhatWasLearnedOutlivesTheDaemon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "learned.json")
	with := func(c *Config) { c.Learned = file }
	n := proven(t, with)
	want, _ := json.Marshal(n.Learned(""))
	n.Server.Close()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	synctest.Test(t, func(t *testing.T) {
		next := start(t, with)
		if got, _ := json.Marshal(next.Learned("")); string(got) != string(want) {
			t.Errorf("learned is %s, not %s", got, want)
		}
		end := next.foresee("new", "frames/new.jpg")
		synctest.Wait()
		if fetched := next.store.takeFetched(); !slices.Equal(fetched, []string{"s3://data/frames/new.jpg"}) {
			t.Errorf("the node fetches %q", fetched)
		}
		end(true)
		if log := next.log(); strings.Contains(log, "WARN") {
			t.Errorf("the log is %s", log)
		}
	})
}

// A file that cannot be read is told, and the node begins again. A learner that cannot be read leaves others alone.
func TestADamagedFileOfWhatWasLearned(t *testing.T) {
	whole := func() []byte {
		n := proven(t, func(c *Config) { c.Learned = filepath.Join(t.TempDir(), "learned.json") })
		n.Server.Close()
		b, err := os.ReadFile(n.config.Learned)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}()
	one := string(whole[1 : len(whole)-1])
	for name, in := range map[string]struct {
		content string // "-": a directory is there
		warns   bool
		learned int
	}{
		"whole":          {string(whole), false, 1},
		"empty":          {"", true, 0},
		"cut off":        {string(whole[:len(whole)/2]), true, 0},
		"no JSON":        {"x", true, 0},
		"another JSON":   {"[1]", true, 0},
		"null":           {"null", false, 0},
		"nothing":        {"{}", false, 0},
		"one is damaged": {`{"media/x":{"store":"s","learner":{"credit":1e99}},` + one + "}", false, 1},
		"one is null":    {`{"media/x":{"store":"s","learner":null},` + one + "}", false, 2},
		"a directory":    {"-", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "learned.json")
			err := os.WriteFile(file, []byte(in.content), 0o600)
			if in.content == "-" {
				err = errors.Join(os.Remove(file), os.Mkdir(file, 0o700))
			}
			if err != nil {
				t.Fatal(err)
			}
			n := start(t, func(c *Config) { c.Learned = file })
			if log := n.log(); strings.Contains(log, "WARN") != in.warns {
				t.Errorf("the log is %s", log)
			}
			if many := len(n.Learned("")); many != in.learned {
				t.Errorf("%d functions are known", many)
			}
			n.learned("media/new", 10)
			if !has(n.Learned(""), "media/new") {
				t.Error("it does not learn")
			}
		})
	}
}

// A file has no more functions than a node learns. What cannot be saved is told.
func TestSaving(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "learned.json")
	all := map[string]saved{}
	for i := range learnersMost + 10 {
		b, err := json.Marshal(learn.New())
		if err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint("media/f", i)] = saved{testStore, b}
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, func(c *Config) { c.Learned = file })
	if many := len(n.Learned("")); many != learnersMost {
		t.Errorf("%d functions are known", many)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	n.Server.Close()
	if !strings.Contains(n.log(), "what was learned of functions is not saved") {
		t.Errorf("the log is %s", n.log())
	}
	nowhere := start(t, nil)
	nowhere.learned(testFunction, 1)
	nowhere.Server.Close()
	if log := nowhere.log(); strings.Contains(log, "WARN") {
		t.Errorf("without a file the log is %s", log)
	}
}
