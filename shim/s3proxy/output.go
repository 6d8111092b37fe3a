package s3proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

const (
	reasonNoOutput  = "NoOutput"
	reasonUnknown   = "OutputUnknown"
	reasonNotStored = "OutputNotStored"

	// handOverMost is how long a request waits for the directory: as long as the shim has connections to the endpoint wait.
	handOverMost = 10 * time.Second
)

// outputs is the directory of a sandbox's outputs. The zero value is not handed over yet.
type outputs struct {
	mu   sync.Mutex
	told bool          // by the shim, what the sandbox has
	dir  *os.Root      // nil: it has none, or none any more
	news chan struct{} // closed when it is told; nil while nobody waits
}

// open has programs store what is in a directory, nil for none, until closed is called, which may be twice.
func (o *outputs) open(dir *os.File) (closed func(), err error) {
	var root *os.Root
	if dir != nil {
		raw, err := dir.SyscallConn()
		if err != nil {
			return func() {}, err
		}
		failed := raw.Control(func(fd uintptr) { root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd)) })
		if err = errors.Join(failed, err); err != nil {
			return func() {}, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told, o.dir = true, root
	if o.news != nil {
		close(o.news)
		o.news = nil
	}
	if root == nil {
		return func() {}, nil
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.dir == root {
			o.told, o.dir = false, nil
		}
		_ = root.Close() // it was only read from
	}, nil
}

// get waits until the directory is handed over, which a daemon that has been replaced does before it ends, and no longer
// than ctx lasts. nil: the sandbox has none.
func (o *outputs) get(ctx context.Context) (*os.Root, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.told {
		if o.news == nil {
			o.news = make(chan struct{})
		}
		news := o.news
		o.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		o.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return o.dir, nil
}

// Store makes a file below the directory of a sandbox's outputs an object of its store, as a PUT by the endpoint would, and
// returns the object's entity tag. Of the header it takes what a PUT would say of the object. Its error is a
// *problem.Problem.
func (s *Server) Store(ctx context.Context, id, name string, to source.Reference, header http.Header) (tag string, err error) {
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	var dir *os.Root
	if sb != nil {
		waiting, cancel := context.WithTimeout(ctx, handOverMost)
		dir, err = sb.outputs.get(waiting)
		cancel()
	}
	if err != nil {
		return "", problem.New(http.StatusServiceUnavailable, reasonNotStored, "",
			"the node does not have the directory of the outputs yet; send the request again")
	}
	if dir == nil {
		return "", problem.New(http.StatusNotFound, reasonNoOutput, filterapi.AnnotationS3,
			"the sandbox has no directory of outputs: it takes the annotation "+filterapi.AnnotationS3+", a network namespace of "+
				"its own, and no credentials of its own")
	}
	f, err := openFile(dir, name)
	if err != nil {
		return "", err
	}
	defer f.Close() // it was only read from
	h := &handler{server: s, sandbox: sb}
	r := (&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/" + to.Bucket + "/" + to.Key}, Header: described(header),
		Body: io.NopCloser(f), ContentLength: f.size()}).WithContext(ctx)
	var a recorder
	e, _ := h.do(&a, r, func(r *http.Request) (*request, error) {
		req := h.request(r)
		req.signed = &sigv4.Signed{ContentSHA256: unsigned, DecodedLength: r.ContentLength} // nobody could send it but the sandbox
		return req, h.allow(req)
	})
	if e == nil {
		e = a.refusal()
	}
	if e != nil {
		return "", problem.New(e.status, reasonNotStored, "", e.Error())
	}
	return strings.Join(a.Header()[spelled("Etag")], ""), nil
}

// described is what a PUT says of an object in a header, and of its trace.
func described(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		own := strings.HasPrefix(name, "X-Amz-") && !slices.Contains(ofRequest, name) && name != "X-Amz-Copy-Source"
		if own || slices.Contains(ofObject, name) || name == "Content-Md5" || name == "Traceparent" || name == "Tracestate" {
			out[name] = values
		}
	}
	return out
}

// file is one that a program must not change while it is read.
type file struct {
	*os.File
	begun fs.FileInfo
	read  int64
}

// openFile opens a regular file that all users of the sandbox can read: who has a file stored need not be who owns it.
func openFile(dir *os.Root, name string) (_ *file, err error) {
	refused := func(status int, why string) error { return problem.New(status, reasonNotStored, "", why) }
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	var of *fs.PathError
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem.New(http.StatusNotFound, reasonUnknown, "", "there is no file "+name+" in the directory of the outputs")
	case errors.Is(err, fs.ErrPermission):
		return nil, refused(http.StatusForbidden, notReadable(name))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.EIO), errors.Is(err, fs.ErrClosed), !errors.As(err, &of):
		return nil, refused(http.StatusServiceUnavailable, "the node cannot open the file "+name+" now; send the request again")
	default:
		return nil, refused(http.StatusBadRequest, "the path "+name+" leads to no file in the directory of the outputs")
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it was not read from
		}
	}()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, refused(http.StatusBadRequest, name+" is not a regular file")
	}
	for above := path.Dir(path.Clean(name)); above != "." && above != "/"; above = path.Dir(above) {
		if at, err := dir.Stat(above); err != nil || at.Mode()&0o001 == 0 {
			return nil, refused(http.StatusForbidden, notReadable(name))
		}
	}
	if info.Mode()&0o004 == 0 {
		return nil, refused(http.StatusForbidden, notReadable(name))
	}
	if has := capacity(f); info.Size() > has {
		return nil, refused(http.StatusBadRequest, fmt.Sprintf("%s has %d bytes, and the directory of the outputs %d", name, info.Size(), has))
	}
	return &file{File: f, begun: info}, nil
}

func notReadable(name string) string {
	return "not all users of the sandbox can read the file " + name + ": chmod a+r, and a+x its directories"
}

// capacity is how many bytes the file system of a file has. A file with holes can be larger.
func capacity(f *os.File) int64 {
	var is unix.Statfs_t
	raw, err := f.SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &is) })
		err = errors.Join(failed, err)
	}
	if err != nil {
		return 0
	}
	return int64(is.Blocks) * is.Bsize
}

func (f *file) size() int64 { return f.begun.Size() }

// Read does not return the last bytes of a file that has been changed meanwhile: nothing whole of it is stored.
func (f *file) Read(b []byte) (int, error) {
	left := f.size() - f.read
	if left == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(b[:min(int64(len(b)), left)])
	f.read += int64(n)
	if f.read < f.size() && err != io.EOF {
		return n, err
	}
	now, failed := f.Stat()
	if failed != nil || f.read < f.size() || now.Size() != f.size() || !now.ModTime().Equal(f.begun.ModTime()) {
		return 0, &sigv4.Error{Status: http.StatusConflict, Code: "OperationAborted",
			Message: "the file was written to while it was stored; store it when it is complete and closed"}
	}
	return n, nil
}

// recorder takes the answer to the request that stores an output.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = cmp.Or(r.status, status) }

// Write implements http.ResponseWriter. It takes as much as a refusal can have.
func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body.Write(b[:min(len(b), errorMost-r.body.Len())])
	return len(b), nil
}

// refusal is the store's, nil if it has taken the object.
func (r *recorder) refusal() *refusal {
	if r.status < http.StatusMultipleChoices {
		return nil
	}
	var said struct{ Code, Message string }
	_ = xml.Unmarshal(r.body.Bytes(), &said) // or it says nothing
	return &refusal{r.status, cmp.Or(said.Code, http.StatusText(r.status)), cmp.Or(said.Message, "the store refuses the object")}
}
