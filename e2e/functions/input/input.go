// Package input brings a request's input into memory: from the request's body, from a file
// that was placed in the sandbox, or else from a store, as a function does that fetches by
// itself.
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

// Reader reads inputs.
type Reader struct {
	// Dir is the directory that files are taken from.
	Dir string
	// Objects returns the store; it is called when the first input comes from there.
	Objects func() (Objects, error)
	// Limit is the largest input in bytes.
	Limit int64
}

// Read returns the request's input: its body, or else what its headers name. Errors that are
// the caller's are a *Refusal.
func (r *Reader) Read(req *http.Request) ([]byte, Origin, error) {
	data, err := r.readBody(req)
	if err != nil || len(data) > 0 {
		return data, Body, err
	}
	return r.Named(req)
}

// Named returns the input that a request's headers name, whatever its body is. A named file
// that is not there counts as none, since a file may still be on its way when the function
// could fetch for itself.
func (r *Reader) Named(req *http.Request) ([]byte, Origin, error) {
	if path := req.Header.Get(HeaderFile); path != "" {
		data, err := r.readFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return data, File, err
		}
	}
	bucket, key := req.Header.Get(HeaderBucket), req.Header.Get(HeaderKey)
	if bucket == "" || key == "" {
		return nil, "", refuse(http.StatusBadRequest,
			"no input: send a body, or name an object in the headers %s and %s", HeaderBucket, HeaderKey)
	}
	store, err := r.Objects()
	if err != nil {
		return nil, Store, err
	}
	data, err := store.Get(req.Context(), bucket, key, r.Limit)
	return data, Store, err
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

// readFile reads a file beneath Dir and nothing else: the header may be anybody's.
func (r *Reader) readFile(path string) ([]byte, error) {
	name, err := filepath.Rel(r.Dir, path)
	if err != nil || !filepath.IsAbs(path) || !filepath.IsLocal(name) {
		return nil, refuse(http.StatusBadRequest, "header %s does not name a file beneath %s", HeaderFile, r.Dir)
	}
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the input directory: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(http.StatusBadRequest, "header %s does not name a regular file", HeaderFile)
	}
	if info.Size() > r.Limit {
		return nil, tooLarge(r.Limit)
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	defer file.Close()
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, fmt.Errorf("reading the input file: %w", err)
	}
	return data, nil
}

func tooLarge(limit int64) *Refusal {
	return refuse(http.StatusRequestEntityTooLarge, "the input has more than %d bytes", limit)
}
