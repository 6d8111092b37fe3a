package functionapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// stores is who makes files objects.
func (r *rig) stores(_ context.Context, sandbox, file string, to source.Reference, header http.Header) (string, error) {
	if file == "none" {
		return "", problem.New(http.StatusNotFound, "OutputUnknown", "", "there is no file none")
	}
	r.stored = append(r.stored, []string{sandbox, file, to.Bucket, to.Key, header.Get("Content-Type")})
	return `"1-1"`, nil
}

func TestAnOutputIsStored(t *testing.T) {
	r := newRig(t, nil)
	resp := r.ask("fire-1", http.MethodPost, "/output/clips/a%20b.mp4?to=s3://videos/out/a%2520b.mp4", nil, "Content-Type", "video/mp4")
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Etag") != `"1-1"` || body(t, resp) != "" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	want := []string{"fire-1", "clips/a b.mp4", "videos", "out/a%20b.mp4", "video/mp4"}
	if len(r.stored) != 1 || !slices.Equal(r.stored[0], want) {
		t.Errorf("stored %q, want %q", r.stored, want)
	}
}

func TestOutputsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	for path, title := range map[string]string{
		"/output/a": "OutputMalformed", "/output/?to=s3://videos/a": "OutputMalformed", "/output/a?to=videos/a": "OutputMalformed",
		"/output/a?to=redis://videos/a": "OutputMalformed", "/output/a?to=s3://videos": "OutputMalformed",
		"/output/none?to=s3://videos/a": "OutputUnknown",
	} {
		status := http.StatusBadRequest
		if title == "OutputUnknown" {
			status = http.StatusNotFound
		}
		wantProblem(t, r.ask("fire-1", http.MethodPost, path, nil), status, title, "")
	}
	wantProblem(t, r.ask("fire-1", http.MethodPost, "/output/a?to=s3://videos/a", strings.NewReader("content")),
		http.StatusBadRequest, "OutputMalformed", "")
	wantProblem(t, r.ask("fire-1", http.MethodPut, "/output/a?to=s3://videos/a", nil), http.StatusMethodNotAllowed, "MethodNotAllowed", "")
	if len(r.stored) > 0 {
		t.Errorf("stored %q", r.stored)
	}
}

// While the daemon before ends, which has the sandbox's directory, it stores.
func TestTheDaemonBeforeStoresOutputs(t *testing.T) {
	first := newRig(t, nil)
	second := next(t, first.dir, true, nil)
	for i, want := range []*rig{first, first, second} {
		if i == 2 {
			first.stop()
		}
		resp := second.ask("fire-1", http.MethodPost, fmt.Sprintf("/output/%d?to=s3://videos/a", i), nil, "Content-Type", "video/mp4")
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Etag") != `"1-1"` {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
		if n := len(want.stored); n == 0 || want.stored[n-1][1] != fmt.Sprint(i) || want.stored[n-1][4] != "video/mp4" {
			t.Errorf("%d is not stored by the right one: %q, %q", i, first.stored, second.stored)
		}
	}
}
