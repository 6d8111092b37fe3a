package functionapi_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// A job's program may be ahead of the news of it: its first read waits for that, and then for
// each byte.
func TestAJobReadsBeforeItIsKnown(t *testing.T) {
	r := newRig(t, nil)
	asked, known := make(chan string, 1), make(chan struct{})
	r.job = func(ctx context.Context, sandbox string) error {
		asked <- sandbox
		select {
		case <-known:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	answer := make(chan string, 1)
	client := r.client("fire-1")
	go func() {
		resp, err := client.Get("http://headstart/input/job")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body) // or it is not all
		answer <- string(got)
	}()
	if sandbox := <-asked; sandbox != "fire-1" {
		t.Errorf("the job is sandbox %s's", sandbox)
	}
	in := sized(10)
	r.begin("fire-1", "job", in, 0)
	close(known)
	in.come(content)
	in.end(nil)
	if got := <-answer; got != content {
		t.Errorf("%q", got)
	}
	if got := body(t, r.get("fire-1", "/input/job")); got != content || len(asked) != 0 {
		t.Errorf("once it is known: %q", got)
	}
	for _, path := range []string{id(1), "other"} { // which are no job's
		wantProblem(t, r.get("fire-1", "/input/"+path), http.StatusNotFound, "RequestUnknown", "")
	}
}

// Why a job has no input its program reads; another's learns as little as ever.
func TestAJobReadsWhyItHasNoInput(t *testing.T) {
	r := newRig(t, nil)
	r.job = func(_ context.Context, sandbox string) error {
		if sandbox == "fire-1" {
			return problem.New(http.StatusServiceUnavailable, "JobUnknown", "", "nobody has told of it")
		}
		return nil
	}
	wantProblem(t, r.get("fire-1", "/input/job"), http.StatusServiceUnavailable, "JobUnknown", "")
	wantProblem(t, r.get("fire-2", "/input/job"), http.StatusNotFound, "RequestUnknown", "")
}

// During an update the daemon before may have a job that the next one does not hear of.
func TestAJobOfTheDaemonBefore(t *testing.T) {
	old := newRig(t, nil)
	old.begin("fire-1", "job", whole(content), 0)
	now := next(t, old.dir, true, nil)
	now.job = func(context.Context, string) error {
		return problem.New(http.StatusServiceUnavailable, "JobUnknown", "", "nobody has told of it")
	}
	if got := body(t, now.get("fire-1", "/input/job")); got != content {
		t.Errorf("%q", got)
	}
}
