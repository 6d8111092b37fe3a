//go:build integration

package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/functions/boto"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
)

// sdk has the function answer that reads and stores by boto3.
func sdk(t *testing.T, function, key, output string) (said boto.Answer) {
	t.Helper()
	a := call{node: testbed.Edge, function: function,
		header: map[string]string{"x-bucket": testbed.Bucket, "x-key": key, "x-output": output}}.ok(t)
	if err := json.Unmarshal(a.body, &said); err != nil || said.Error != "" {
		t.Fatalf("%s: %v %s", key, err, a.body)
	}
	return said
}

// python brings the image of the program in Python.
func python(t *testing.T) {
	t.Helper()
	image, err := boto.Image(binaries)
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Import(t.Context(), image); err != nil {
		t.Fatal(err)
	}
}

// An unmodified program in Python finds its store, reads from it, and what it stores is there.
func TestAProgramFindsS3(t *testing.T) {
	python(t)
	deploy(t, testbed.Function{Name: "sdk", Image: boto.Ref, Node: testbed.Edge,
		Template: map[string]string{"headstart.dev/s3": testbed.Store}})
	want := put(t, "sdk/in", 8<<20)
	for range 2 {
		if said := sdk(t, "sdk", "sdk/in", "sdk/out"); said.SHA256 != want {
			t.Errorf("%+v", said)
		}
	}
	if got, err := bed.S3.Get(t.Context(), "sdk/out"); err != nil || len(got) != 8<<20 {
		t.Errorf("stored: %d bytes, %v", len(got), err)
	}
	if said := sdk(t, "sdk", "sdk/out", ""); said.SHA256 != want {
		t.Errorf("what was stored: %+v", said)
	}
}

// A program with credentials of its own uses these.
func TestAProgramWithCredentialsIsLeftAlone(t *testing.T) {
	python(t)
	deploy(t, testbed.Function{Name: "own", Image: boto.Ref, Node: testbed.Edge,
		Template: map[string]string{"headstart.dev/s3": testbed.Store},
		Env:      map[string]string{"AWS_ENDPOINT_URL": bed.S3.Endpoint, "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_REGION": testbed.Region}})
	a, err := call{node: testbed.Edge, function: "own", header: map[string]string{"x-bucket": testbed.Bucket, "x-key": "in"}}.do(t.Context())
	if err != nil || a.status != http.StatusBadGateway || !bytes.Contains(bytes.ToLower(a.body), []byte("access key")) {
		t.Errorf("%d %s, %v", a.status, a.body, err)
	}
}

// With an input that the program reads by S3, the object is fetched while the program starts, and the request has no body.
func TestAnInputIsFetchedForS3(t *testing.T) {
	python(t)
	deploy(t, testbed.Function{Name: "ahead", Image: boto.Ref, Node: testbed.Edge, Annotations: withInput("headstart.dev/read-by", "s3"),
		Template: map[string]string{"headstart.dev/s3": testbed.Store}, Env: map[string]string{"START_SECONDS": "1.5"}})
	want := put(t, "ahead/in", 16<<20)
	a := call{node: testbed.Edge, function: "ahead", header: forInput("ahead/in")}.ok(t)
	var said boto.Answer
	if err := json.Unmarshal(a.body, &said); err != nil || said.SHA256 != want {
		t.Fatalf("%v %s", err, a.body)
	}
	for _, s := range traceWith(t, a.header.Get(filterapi.HeaderRequest), tracing.S3, 1).Spans {
		if way := s.Attributes[string(tracing.InputWay)]; s.Name == tracing.S3 && way != objects.WayRevalidated {
			t.Errorf("the program's read: %v", s.Attributes)
		}
	}
}

// What is acknowledged and not in the store yet outlives the daemon: other nodes wait for it, and get it.
func TestAWriteBehindOutlivesTheDaemon(t *testing.T) {
	python(t)
	for name, node := range map[string]string{"writer": testbed.Edge, "reader": testbed.Cloud} {
		deploy(t, testbed.Function{Name: name, Image: boto.Ref, Node: node,
			Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}, Template: map[string]string{"headstart.dev/s3": testbed.Store}})
	}
	want := put(t, "behind/in", 24<<20)
	if said := sdk(t, "writer", "behind/in", ""); said.SHA256 != want {
		t.Fatalf("%+v", said)
	}
	for n := range 10 { // an upload can be faster than what kills the daemon
		key := fmt.Sprint("behind/", n)
		a := call{node: testbed.Edge, function: "writer", header: map[string]string{"x-bucket": testbed.Bucket, "x-key": "behind/in",
			"x-output-bucket": testbed.Interim, "x-output": key}}.ok(t)
		if err := syscall.Kill(bed.PID("headstart-node-"+testbed.Edge), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		var said boto.Answer
		if err := json.Unmarshal(a.body, &said); err != nil || said.Error != "" || said.SHA256 != want {
			t.Fatalf("%v %s", err, a.body)
		}
		pending, err := bed.S3.Has(t.Context(), testbed.Interim, ".headstart/pending/"+key)
		if err != nil {
			t.Fatal(err)
		}
		a = call{node: testbed.Cloud, function: "reader", header: map[string]string{"x-bucket": testbed.Interim, "x-key": key}}.ok(t)
		if err := json.Unmarshal(a.body, &said); err != nil || said.Error != "" || said.SHA256 != want {
			t.Fatalf("the other node reads: %v %s", err, a.body)
		}
		if pending {
			return
		}
	}
	t.Error("each upload was faster than the daemon's end")
}

// A program that runs goes on when the daemon is another one, whatever that knows yet.
func TestS3OutlivesTheDaemon(t *testing.T) {
	python(t)
	deploy(t, testbed.Function{Name: "outlives", Image: boto.Ref, Node: testbed.Edge,
		Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}, Template: map[string]string{"headstart.dev/s3": testbed.Store}})
	want := put(t, "outlives/in", 1<<20)
	if said := sdk(t, "outlives", "outlives/in", ""); said.SHA256 != want {
		t.Fatalf("%+v", said)
	}
	killDaemon(t, testbed.Edge)
	if said := sdk(t, "outlives", "outlives/in", "outlives/out"); said.SHA256 != want {
		t.Errorf("%+v", said)
	}
	if n := len(function(t, "outlives").Instances); n != 1 {
		t.Errorf("%d instances", n)
	}
}

// What a program writes below /headstart/output is an object by one request on its socket, in either kind of bucket, also for
// the daemon's next process. The next function has it as its input.
func TestOutputsBecomeObjects(t *testing.T) {
	deploy(t, testbed.Function{Name: "makes", Image: testbed.Handoff, Node: testbed.Edge,
		Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}, Template: map[string]string{"headstart.dev/s3": testbed.Store}})
	deploy(t, testbed.Function{Name: "made", Image: testbed.Handoff, Node: testbed.Cloud, Annotations: withInput()})
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	want := fmt.Sprintf("%x", sha256.Sum256(content))
	store := func(object string) answer {
		t.Helper()
		return handoff(t, call{node: testbed.Edge, function: "makes", path: "/output",
			header: map[string]string{"x-object": object}, body: bytes.NewReader(content)})
	}
	for _, bucket := range []string{testbed.Bucket, testbed.Interim} {
		object := "s3://" + bucket + "/outputs/1"
		if a := store(object); a.status != http.StatusNoContent {
			t.Fatalf("%s: %d %s", object, a.status, a.body)
		}
		a := handoff(t, call{node: testbed.Edge, function: "makes", path: "/reference?to=made", header: map[string]string{"x-object": object}})
		if a.status != http.StatusOK || string(a.body) != want {
			t.Errorf("%s: the next function: %d %.300s", object, a.status, a.body)
		}
	}
	if a := store("s3://private/outputs/1"); a.problem.Title != "OutputNotStored" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if err := syscall.Kill(bed.PID("headstart-node-"+testbed.Edge), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next daemon has the directory", func() error {
		if a := store("s3://" + testbed.Bucket + "/outputs/2"); a.status != http.StatusNoContent {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	if got, err := bed.S3.Get(t.Context(), "outputs/2"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("stored: %d bytes, %v", len(got), err)
	}
}
