// Package copying is the cache of the paper (CacheFlow, CLOSER 2024), which the benchmark compares with: files in a
// directory of the node, which are copied for each function that reads them.
package copying

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Cache is a node's.
type Cache struct {
	dir      string
	capacity int64

	mu    sync.Mutex
	queue *list.List // of *file, the last used one first
	files map[string]*list.Element
	size  int64
}

type file struct {
	key  string
	size int64
}

// ErrCorrupt says that a file is not what was cached.
var ErrCorrupt = errors.New("the file's hash is not the one of when it was cached")

// New returns an empty cache of some bytes in a directory.
func New(dir string, capacity int64) *Cache {
	return &Cache{dir: dir, capacity: capacity, queue: list.New(), files: map[string]*list.Element{}}
}

func (c *Cache) path(key string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(key, "/", "_"))
}

// Put copies a file into the cache, and records its hash in a file beside it (section 4.3: "The correct hash value is
// calculated and recorded when the file is initially cached").
func (c *Cache) Put(key, from string) error {
	if err := copyFile(from, c.path(key)); err != nil {
		return err
	}
	sum, err := hash(c.path(key))
	if err == nil {
		err = os.WriteFile(c.path(key)+".hash", sum, 0o644)
	}
	info, missing := os.Stat(from)
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	return c.used(key, info.Size())
}

// Has tells whether the cache has a file.
func (c *Cache) Has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files[key] != nil
}

// Get copies a file of the cache to the function's own space ("each pod will have its designated space", section 3.3),
// after its hash has been compared (algorithm 2). It is fs.ErrNotExist if the node has no such file.
func (c *Cache) Get(key, to string) error {
	c.mu.Lock()
	at := c.files[key]
	c.mu.Unlock()
	if at == nil {
		return fs.ErrNotExist
	}
	sum, err := hash(c.path(key))
	if err != nil {
		return err
	}
	if want, err := os.ReadFile(c.path(key) + ".hash"); err != nil || !bytes.Equal(sum, want) {
		return errors.Join(ErrCorrupt, err)
	}
	if err := copyFile(c.path(key), to); err != nil {
		return err
	}
	return c.used(key, at.Value.(*file).size)
}

// used is algorithm 1.
func (c *Cache) used(key string, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.files[key]; at != nil {
		c.queue.MoveToFront(at)
		return nil
	}
	c.files[key] = c.queue.PushFront(&file{key, size})
	var errs []error
	for c.size += size; c.size > c.capacity; {
		errs = append(errs, c.remove(c.queue.Back()))
	}
	return errors.Join(errs...)
}

// Drop removes the files whose keys begin with a prefix.
func (c *Cache) Drop(prefix string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for key, at := range c.files {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		errs = append(errs, c.remove(at))
	}
	return errors.Join(errs...)
}

// remove removes a file.
func (c *Cache) remove(at *list.Element) error {
	gone := c.queue.Remove(at).(*file)
	delete(c.files, gone.key)
	c.size -= gone.size
	return errors.Join(os.Remove(c.path(gone.key)), os.Remove(c.path(gone.key)+".hash"))
}

// Serve gives files to other nodes until the listener is closed (section 3.4, the Data Serve: by TCP). A connection is
// for one file: its key in a line, then its hash and its bytes.
func (c *Cache) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var key string
			if _, err := fmt.Fscanln(conn, &key); err != nil {
				return
			}
			sum, err := os.ReadFile(c.path(key) + ".hash")
			if err != nil {
				return
			}
			f, err := os.Open(c.path(key))
			if err != nil {
				return
			}
			defer f.Close()
			_, _ = conn.Write(sum) // who has gone is told nothing
			_, _ = io.Copy(conn, f)
		}()
	}
}

// From writes a file that another node serves to the function's own space, and compares its hash (section 4.3).
func From(conn net.Conn, key, to string) error {
	if _, err := fmt.Fprintln(conn, key); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, want); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, conn)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	sum, err := hash(to)
	if err == nil && !bytes.Equal(sum, want) {
		err = ErrCorrupt
	}
	return err
}

func hash(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// copyFile copies bytes, as the paper's does: io.Copy would have some file systems share them.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in})
	return errors.Join(err, out.Close())
}
