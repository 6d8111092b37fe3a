package trace_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// userCollector stands for a connection to the user's collector.
type userCollector struct {
	grpc.ClientConnInterface
	hang bool // until the caller gives up

	mu  sync.Mutex
	err error
	got []*collectorpb.ExportTraceServiceRequest
}

func (u *userCollector) Invoke(ctx context.Context, _ string, args, _ any, _ ...grpc.CallOption) error {
	if u.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.got = append(u.got, args.(*collectorpb.ExportTraceServiceRequest))
	}
	return u.err
}

func (u *userCollector) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

func TestForwarderPassesOnWhatTheStoreTakes(t *testing.T) {
	store, user := trace.NewStore(), &userCollector{}
	f := trace.Forward(store, user, slog.New(slog.DiscardHandler))
	export(t, f, otlp(1, 1, "fetch"))
	export(t, f, otlp(2, 1, "fetch"), otlp(2, 2, "execute"))
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []*collectorpb.ExportTraceServiceRequest{request(otlp(1, 1, "fetch")), request(otlp(2, 1, "fetch"), otlp(2, 2, "execute"))}
	if d := cmp.Diff(want, user.got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if got := store.Recent(9); len(got) != 2 {
		t.Errorf("the store has %v", got)
	}
	if f.Dropped() != 0 {
		t.Errorf("%d dropped", f.Dropped())
	}

	export(t, f, otlp(3, 1, "after the end"))
	if _, ok := store.Get(number(3)); !ok || f.Dropped() != 1 {
		t.Errorf("after Close: in the store %v, %d dropped", ok, f.Dropped())
	}
	if err := f.Close(t.Context()); err == nil {
		t.Error("a second Close says nothing")
	}
}

func TestForwarderMakesNobodyWait(t *testing.T) {
	fat := make([]byte, 1<<20)
	for name, tc := range map[string]struct {
		message string
		sent    int
		fit     int
	}{
		"many": {"", trace.ForwardRequests + 10, trace.ForwardRequests},
		"fat":  {string(fat), 2 * trace.ForwardBytes / len(fat), trace.ForwardBytes/len(fat) - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := trace.Forward(trace.NewStore(), &userCollector{hang: true}, slog.New(slog.DiscardHandler))
				export(t, f, otlp(1, 1, "on its way"))
				synctest.Wait() // the one on its way has left the queue
				for i := range tc.sent {
					export(t, f, otlp(2, uint64(i)+1, tc.message))
				}
				if got, want := f.Dropped(), int64(tc.sent-tc.fit); got != want {
					t.Errorf("%d spans dropped, want %d", got, want)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := f.Close(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Close: %v", err)
				}
				if got, want := f.Dropped(), int64(tc.sent+1); got != want {
					t.Errorf("%d spans dropped in the end, want %d", got, want)
				}
			})
		})
	}
}

func TestForwarderGivesUpOnACollectorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := trace.Forward(trace.NewStore(), &userCollector{hang: true}, slog.New(slog.DiscardHandler))
		export(t, f, otlp(1, 1, "fetch"))
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if f.Dropped() != 1 {
			t.Errorf("%d dropped", f.Dropped())
		}
	})
}

func TestForwarderLogsOncePerFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		user := &userCollector{}
		f := trace.Forward(trace.NewStore(), user, slog.New(slog.NewTextHandler(&log, nil)))
		for i, err := range []error{nil, errors.New("away"), errors.New("away"), nil, nil} {
			user.fail(err)
			export(t, f, otlp(1, uint64(i)+1, "fetch"))
			synctest.Wait()
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "away") || !strings.Contains(got, "dropped_spans=2") {
			t.Errorf("log:\n%s", got)
		}
	})
}
