//go:build integration

package s3proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

// outputs is a sandbox that writes files and has them stored.
type outputs struct {
	t    *testing.T
	node *s3proxytest.Node
	id   string
	dir  string
	c    *sdk.Client
}

func newOutputs(t *testing.T, node *s3proxytest.Node) outputs {
	t.Helper()
	env := node.Pod("default", "a", "")
	o := outputs{t: t, node: node, id: s3proxytest.ID("default", "a"), dir: s3proxytest.Get(env, "HEADSTART_OUTPUT_DIR"), c: client(t, env)}
	if _, err := o.c.ListBuckets(t.Context(), &sdk.ListBucketsInput{}); err != nil { // the endpoint is served
		t.Fatal(err)
	}
	return o
}

func (o outputs) write(name string, b []byte) {
	o.t.Helper()
	at := filepath.Join(o.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, 0o644)); err != nil {
		o.t.Fatal(err)
	}
}

func (o outputs) store(name, key string, header http.Header) (string, error) {
	return o.node.Server.Store(o.t.Context(), o.id, name, source.Reference{Scheme: source.SchemeS3, Bucket: s3proxytest.Bucket, Key: key}, header)
}

// refuses sees that a file is not stored, and why.
func (o outputs) refuses(name, bucket, key string, status int, title, says string) {
	o.t.Helper()
	_, err := o.node.Server.Store(o.t.Context(), o.id, name, source.Reference{Scheme: source.SchemeS3, Bucket: bucket, Key: key}, http.Header{})
	if p := problem.Of(err); err == nil || p.Status != status || p.Title != title || !strings.Contains(p.Detail, says) {
		o.t.Errorf("%s: %v, want %d %s ...%s...", name, err, status, title, says)
	}
}

// A file becomes what a PUT would have made, by either way of writing, and is read on the node without the store.
func TestAnOutputBecomesAnObject(t *testing.T) {
	for _, write := range []string{"through", "back"} {
		t.Run(write, func(t *testing.T) {
			store := s3proxytest.StartStore(t)
			o := newOutputs(t, s3proxytest.StartNode(t, store, s3proxytest.Options{Write: write}))
			for size, name := range map[int]string{0: "empty", 1000: "small file?", 5 << 20: "clips/large.mp4"} {
				want := content(size)
				o.write(name, want)
				tag, err := o.store(name, "out/"+name, http.Header{"Content-Type": {"video/mp4"}, "X-Amz-Meta-Camera": {"7"},
					"X-Amz-Copy-Source": {"data/in"}, "Authorization": {"x"}, "X-Amz-Content-Sha256": {"x"}, "Content-Length": {"3"}})
				if err != nil {
					t.Fatal(err)
				}
				got, body := get(t, o.c, s3proxytest.Bucket, "out/"+name)
				if !bytes.Equal(body, want) || aws.ToString(got.ETag) != tag || got.Metadata["camera"] != "7" || aws.ToString(got.ContentType) != "video/mp4" {
					t.Errorf("%s: %d bytes, %v %q, %v", name, len(body), got.Metadata, tag, aws.ToString(got.ETag))
				}
			}
			if ways := o.node.Ways(); write == "through" && ways["store"] > 1 { // of the empty one the node keeps nothing
				t.Errorf("read as %v", ways)
			}
			// Again, and with other content.
			o.write("empty", []byte("now it is not"))
			if _, err := o.store("empty", "out/empty", nil); err != nil {
				t.Fatal(err)
			}
			if _, body := get(t, o.c, s3proxytest.Bucket, "out/empty"); string(body) != "now it is not" {
				t.Errorf("read %q", body)
			}
		})
	}
}

// What is no file in the directory is not stored, and neither is what changes meanwhile. The program is told.
func TestOutputsThatAreNotStored(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{})
	o := newOutputs(t, node)
	o.write("dir/file", []byte("x"))
	if err := syscall.Mkfifo(filepath.Join(o.dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	o.refuses("none", s3proxytest.Bucket, "k", http.StatusNotFound, "OutputUnknown", "no file none")
	o.refuses("dir", s3proxytest.Bucket, "k", http.StatusBadRequest, "OutputNotStored", "not a regular file")
	o.refuses("pipe", s3proxytest.Bucket, "k", http.StatusBadRequest, "OutputNotStored", "not a regular file")
	o.refuses("dir/file/more", s3proxytest.Bucket, "k", http.StatusBadRequest, "OutputNotStored", "leads to no file")
	o.refuses("dir/file", s3proxytest.Hidden, "k", http.StatusForbidden, "OutputNotStored", "does not list bucket")
	o.refuses("dir/file", s3proxytest.ReadOnly, "k", http.StatusForbidden, "OutputNotStored", "only read bucket")
	for path, modes := range map[string][2]os.FileMode{"dir/file": {0o640, 0o644}, "dir": {0o700, 0o755}} {
		for i, says := range []string{"chmod a+r", ""} {
			if err := os.Chmod(filepath.Join(o.dir, path), modes[i]); err != nil {
				t.Fatal(err)
			}
			if says != "" {
				o.refuses("dir/file", s3proxytest.Bucket, "k", http.StatusForbidden, "OutputNotStored", says)
			} else if _, err := o.store("dir/file", "k", nil); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := o.store("dir/file", "k", http.Header{"Content-Md5": {"AAAAAAAAAAAAAAAAAAAAAA=="}}); problem.Of(err).Status != http.StatusBadRequest {
		t.Errorf("with another MD5: %v", err)
	}
	f, err := os.Create(filepath.Join(o.dir, "holes"))
	if err == nil {
		err = errors.Join(f.Truncate(1<<43), f.Close()) // ext4 has files of up to 16 TiB
	}
	if err != nil {
		t.Fatal(err)
	}
	o.refuses("holes", s3proxytest.Bucket, "k", http.StatusBadRequest, "OutputNotStored", "8796093022208 bytes")
	if _, err := node.Server.Store(t.Context(), "default_other_uid", "a", source.Reference{Bucket: "data", Key: "k"}, nil); problem.Of(err).Title != "NoOutput" {
		t.Error(err)
	}

	// The store takes the content until the program writes to the file again.
	o.write("large", content(8<<20))
	begun := make(chan struct{})
	var once sync.Once
	goOn := make(chan struct{})
	hold := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r.Body, 1<<20), waits{func() { once.Do(func() { close(begun) }); <-goOn }, r.Body}), r.Body}
		return false
	}
	store.Before.Store(&hold)
	stored := asks(func() error { _, err := o.store("large", "changed", nil); return err })
	<-begun
	f, err = os.OpenFile(filepath.Join(o.dir, "large"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("changed"), 7<<20)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if p := problem.Of(<-stored); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "written to while") {
		t.Errorf("%+v", p)
	}
	if _, err := o.c.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("changed")}); err == nil {
		t.Error("it is stored")
	}
}

// waits is a reader that waits once before it goes on.
type waits struct {
	wait func()
	io.Reader
}

func (w waits) Read(b []byte) (int, error) {
	w.wait()
	return w.Reader.Read(b)
}

// A program makes objects of files in its own directory alone, whatever links and paths it makes.
func TestAttackAnOutputIsElsewhere(t *testing.T) {
	node := s3proxytest.StartNode(t, s3proxytest.StartStore(t), s3proxytest.Options{})
	o := newOutputs(t, node)
	other := s3proxytest.Get(node.Pod("media", "b", ""), "HEADSTART_OUTPUT_DIR")
	secret := filepath.Join(other, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(o.dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range []string{secret, relative, other, "/etc/passwd", "/proc/self/environ", "."} {
		if err := os.Symlink(to, filepath.Join(o.dir, fmt.Sprint("link", i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{relative, secret, "/etc/passwd", "link0", "link1", "link2/secret", "link3", "link4", "link5/" + relative,
		"../" + filepath.Base(other) + "/secret", "..", ".", "./../..", "link0\x00", "/proc/self/environ"} {
		if tag, err := o.store(name, "won", nil); err == nil {
			t.Errorf("%q is stored as %s", name, tag)
		}
	}
	if _, err := o.c.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("won")}); err == nil {
		t.Error("something is stored")
	}
}
