// Package input brings a request's input into memory: from the request's body, from a file
// that was placed in the sandbox, which it maps, or else from a store, as a function does that
// fetches by itself.
package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Headers that say where the input is.
const (
	HeaderFile   = "X-Headstart-Input-File"
	HeaderBucket = "X-Bucket"
	HeaderKey    = "X-Key"
)

// Origin is where the input came from.
type Origin string

// The origins, in the order they are tried.
const (
	Body  Origin = "body"
	File  Origin = "file"
	Store Origin = "store"
)

// Objects is an object store.
type Objects interface {
	// Get returns a whole object. It refuses one of more than limit bytes.
	Get(ctx context.Context, bucket, key string, limit int64) ([]byte, error)
}

// Refusal is an error for the caller, with its HTTP status.
type Refusal struct {
	Status  int
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Input is a request's input. Its bytes may be a file's, and must not be changed.
type Input struct {
	Data []byte
	From Origin

	mapped bool
}

// Close lets go of Data, which must not be looked at any more.
func (in *Input) Close() error {
	if !in.mapped {
		return nil
	}
	in.mapped = false
	return unix.Munmap(in.Data)
}

// Reader reads inputs.
type Reader struct {
	// Dir is the directory that files are taken from.
	Dir string
	// Objects returns the store; it is called when the first input comes from there.
	Objects func() (Objects, error)
	// Limit is the largest input in bytes.
	Limit int64
}

// Words is the type of bodies that are no input, but beside one that the headers name.
const Words = "application/json"

// Read returns the request's input: its body, or else what its headers name. Errors that are
// the caller's are a *Refusal. The caller closes the input.
func (r *Reader) Read(req *http.Request) (*Input, error) {
	if req.Header.Get("Content-Type") == Words {
		return r.named(req)
	}
	data, err := r.readBody(req)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		return &Input{Data: data, From: Body}, nil
	}
	return r.named(req)
}

// named returns the input that a request's headers name, whatever its body is. A named file
// that is not there counts as none, since a file may still be on its way when the function
// could fetch for itself.
func (r *Reader) named(req *http.Request) (*Input, error) {
	if path := req.Header.Get(HeaderFile); path != "" {
		in, err := r.mapFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return in, err
		}
	}
	bucket, key := req.Header.Get(HeaderBucket), req.Header.Get(HeaderKey)
	if bucket == "" || key == "" {
		return nil, refuse(http.StatusBadRequest,
			"no input: send a body, or name an object in the headers %s and %s", HeaderBucket, HeaderKey)
	}
	store, err := r.Objects()
	if err != nil {
		return nil, err
	}
	data, err := store.Get(req.Context(), bucket, key, r.Limit)
	if err != nil {
		return nil, err
	}
	return &Input{Data: data, From: Store}, nil
}

func (r *Reader) readBody(req *http.Request) ([]byte, error) {
	if req.ContentLength > r.Limit {
		return nil, tooLarge(r.Limit)
	}
	if req.ContentLength >= 0 {
		data := make([]byte, req.ContentLength)
		if _, err := io.ReadFull(req.Body, data); err != nil {
			return nil, refuse(http.StatusBadRequest, "reading the body: %v", err)
		}
		return data, nil
	}
	var data bytes.Buffer
	if _, err := data.ReadFrom(io.LimitReader(req.Body, r.Limit+1)); err != nil {
		return nil, refuse(http.StatusBadRequest, "reading the body: %v", err)
	}
	if int64(data.Len()) > r.Limit {
		return nil, tooLarge(r.Limit)
	}
	return data.Bytes(), nil
}

// memoryDir is beside Dir: links in Dir lead there, where a node buffers in memory.
const memoryDir = "memory"

// mapFile maps a file beneath Dir and nothing else: the header may be anybody's. What is placed
// in a sandbox is complete and does not change, so there is nothing that a copy would be for.
func (r *Reader) mapFile(path string) (*Input, error) {
	name, err := filepath.Rel(r.Dir, path)
	if err != nil || !filepath.IsAbs(path) || !filepath.IsLocal(name) {
		return nil, refuse(http.StatusBadRequest, "header %s does not name a file beneath %s", HeaderFile, r.Dir)
	}
	dir, err := filepath.EvalSymlinks(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the input directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	if !beneath(dir, real) && !beneath(filepath.Join(filepath.Dir(dir), memoryDir), real) {
		return nil, refuse(http.StatusBadRequest, "header %s does not name a file beneath %s", HeaderFile, r.Dir)
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(http.StatusBadRequest, "header %s does not name a regular file", HeaderFile)
	}
	if info.Size() > r.Limit {
		return nil, tooLarge(r.Limit)
	}
	if info.Size() == 0 { // there is no mapping of nothing
		return &Input{From: File}, nil
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("mapping the input file: %w", err)
	}
	return &Input{Data: data, From: File, mapped: true}, nil
}

func beneath(dir, path string) bool {
	name, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(name)
}

func tooLarge(limit int64) *Refusal {
	return refuse(http.StatusRequestEntityTooLarge, "the input has more than %d bytes", limit)
}
