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
	"slices"
	"strings"

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
)

// open has programs store what is in the directory of their outputs, until closed is called.
func (sb *sandbox) open(dir *os.File) (closed func(), err error) {
	raw, err := dir.SyscallConn()
	if err != nil {
		return func() {}, err
	}
	var root *os.Root
	failed := raw.Control(func(fd uintptr) { root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	if err = errors.Join(failed, err); err != nil {
		return func() {}, err
	}
	sb.outputs.Store(root)
	return func() {
		sb.outputs.CompareAndSwap(root, nil)
		_ = root.Close() // it was only read from
	}, nil
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
		dir = sb.outputs.Load()
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
		if own || slices.Contains(ofObject, name) || name == "Traceparent" || name == "Tracestate" {
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

func openFile(dir *os.Root, name string) (*file, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem.New(http.StatusNotFound, reasonUnknown, "", "there is no file "+name+" in the directory of the outputs")
	case errors.Is(err, fs.ErrPermission):
		return nil, problem.New(http.StatusForbidden, reasonNotStored, "", "the node cannot read the file "+name+
			": all users have to be able to (chmod a+r, and a+x for directories)")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, reasonNotStored, "", "the path "+name+" leads to no file in the directory of the outputs")
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(problem.New(http.StatusBadRequest, reasonNotStored, "", name+" is not a regular file"), f.Close())
	}
	return &file{File: f, begun: info}, nil
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
