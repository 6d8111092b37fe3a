package ingress_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/trigger/triggertest"
)

// An answer that breaks off is no answer to an entry: it is tried again, and then a dead letter,
// which says who broke it off.
func TestAStreamsEntryIsNotAnsweredByHalf(t *testing.T) {
	half := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for reason, where := range map[string]func(*testing.T) *rig{
		"FunctionFailed": func(t *testing.T) *rig { return newRig(t, half) },
		"PeerFailed":     func(t *testing.T) *rig { return newPair(t, half).gateway },
	} {
		t.Run(reason, func(t *testing.T) {
			r := where(t)
			stream, set := r.consume(t)
			stream.Put(map[string]string{"data": "x"})
			eventually(t, "the entry is a dead letter", func() bool { return len(stream.Dead(t)) == 1 && len(stream.Pending(t)) == 0 })
			if got := stream.Dead(t)[0]["headstart-reason"]; got != reason {
				t.Errorf("it is one for %s", got)
			}
			if err := set.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A function that speaks HTTP/2 alone, and says so, has its entries by that, on any node.
func TestAStreamsEntryGoesByHTTP2(t *testing.T) {
	got := make(chan string, 1)
	function := func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		got <- req.Proto + " " + string(body)
	}
	for name, where := range map[string]func(*testing.T) *rig{
		"here": func(t *testing.T) *rig {
			r := newRig(t, nil)
			r.instances.runH2(t, function)
			return r
		},
		"on another node": func(t *testing.T) *rig {
			p := newPair(t, nil)
			p.target.instances.runH2(t, function)
			return p.gateway
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := where(t)
			r.change(func(f *nodeapi.Function) { f.Http2 = true })
			stream, set := r.consume(t)
			stream.Put(map[string]string{"data": "x"})
			eventually(t, "the entry is settled", func() bool { return len(stream.Dead(t))+len(got) == 1 && len(stream.Pending(t)) == 0 })
			if dead := stream.Dead(t); len(dead) > 0 {
				t.Fatalf("it is a dead letter: %v; %s", dead, r.logs.String())
			}
			if is := <-got; is != "HTTP/2.0 x" {
				t.Errorf("it came as %s", is)
			}
			if err := set.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// consume has the rig's function called for the entries of a stream, once for each.
func (r *rig) consume(t *testing.T) (*triggertest.Memory, *trigger.Set) {
	t.Helper()
	stream := triggertest.NewMemory(10 * time.Millisecond)
	set := trigger.New(trigger.Config{Gateway: r.Gateway(), Function: r.functions.Lookup, Node: "edge-1", Process: "p", Events: &controlPlane{held: map[string]int32{}},
		Metrics: trigger.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		Open: func(_ *nodeapi.Trigger, consumer string) (trigger.Stream, error) { return stream.Open(consumer), nil }})
	set.Set([]*nodeapi.Trigger{{Function: withInput, Stream: "redis://jobs/frames", Tries: 1, Input: "s3://inputs/{header.ce-subject}"}})
	return stream, set
}

// An entry of a stream is a request like any other: it is placed, has its input fetched, and
// finds it in the body or as a file.
func TestAStreamsEntryIsARequest(t *testing.T) {
	type event struct{ Subject, Body, File, Internal string }
	var mu sync.Mutex
	var got []event
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		e := event{Subject: req.Header.Get("ce-subject"), Body: string(body), Internal: req.Header.Get("x-headstart-input")}
		if req.Header.Get("x-headstart-input-file") != "" {
			e.File = "there"
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, e)
		w.WriteHeader(http.StatusNoContent)
	})
	r.put("camera 7/1.mjpeg", "video/x-motion-jpeg", []byte("frames"))
	stream, set := r.consume(t)
	large := string(bytes.Repeat([]byte("x"), 100<<10)) // more than is kept for a second placement
	for done, fields := range []map[string]string{{"subject": "camera 7/1.mjpeg"}, {"subject": "camera 7/1.mjpeg", "data": large}, {"data": "no input"}, {"subject": "none"}} {
		stream.Put(fields)
		eventually(t, "the entry is settled", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(got)+len(stream.Dead(t)) == done+1 && len(stream.Pending(t)) == 0
		})
	}
	if err := set.Close(context.Background()); err != nil {
		t.Error(err)
	}
	want := []event{{Subject: "camera%207/1.mjpeg", Body: "frames", File: "there"}, {Subject: "camera%207/1.mjpeg", Body: large, File: "there"}, {Body: "no input"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the function got (-want +got):\n%s", d)
	}
	if dead := stream.Dead(t); len(dead) != 1 || dead[0]["headstart-reason"] != "InputNotFound" {
		t.Errorf("dead letters: %v", dead)
	}
}
