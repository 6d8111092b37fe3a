package sourcetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// memoryPart is how many bytes Memory writes at once. Small, so that tests with small
// objects have several parts.
const memoryPart = 1 << 10

// Memory is a store in memory, for the tests of whatever uses a source. Its zero value
// is an empty store.
type Memory struct {
	// Before, if set, is called before each part is written; an error fails the fetch.
	// Set it before the first fetch.
	Before func(ctx context.Context, ref source.Reference, offset int64) error
	// Allowed, if set, are the only references that may be read. Set it before the first.
	Allowed func(ref source.Reference) bool
	// Unsized says that nobody is told an object's size before its end. Set it before the
	// first fetch.
	Unsized bool
	// Asked, if set, is called when a version is held that may still be the object's, before the store
	// looks; an error fails the fetch. Set it before the first fetch.
	Asked func(ctx context.Context, ref source.Reference) error
	// Fresh is what the store says of how long its answers hold. Set it before the first fetch.
	Fresh time.Duration

	mu      sync.Mutex
	version int
	objects map[source.Reference]memoryObject
}

type memoryObject struct {
	source.Object
	content []byte
}

// Put creates or replaces an object.
func (m *Memory) Put(ref source.Reference, contentType string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[source.Reference]memoryObject{}
	}
	m.version++
	m.objects[ref] = memoryObject{
		Object:  source.Object{Size: int64(len(content)), ContentType: contentType, Version: fmt.Sprint(m.version)},
		content: bytes.Clone(content),
	}
}

// Delete removes an object, if it is there.
func (m *Memory) Delete(ref source.Reference) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, ref)
}

// Fetch implements source.Source.
func (m *Memory) Fetch(ctx context.Context, ref source.Reference, held string,
	begin func(source.Object) (io.WriterAt, error),
) error {
	if held != "" && m.Asked != nil {
		if err := m.Asked(ctx, ref); err != nil {
			return err
		}
	}
	object, err := m.find(ref)
	if err != nil {
		return err
	}
	told := object.Object
	told.Fresh = m.Fresh
	if ctx.Err() != nil {
		return source.Ended(ctx, "memory", ref)
	}
	if held == told.Version {
		return &source.Unchanged{Fresh: m.Fresh}
	}
	if m.Unsized {
		told.Size = -1
	}
	w, err := begin(told)
	if err != nil {
		return err
	}
	for at := int64(0); at < object.Size; at += memoryPart {
		if m.Before != nil {
			if err := m.Before(ctx, ref, at); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return source.Ended(ctx, "memory", ref)
		}
		if now, _ := m.get(ref); now.Version != object.Version {
			return source.Changed("memory", ref)
		}
		if _, err := w.WriteAt(object.content[at:min(at+memoryPart, object.Size)], at); err != nil {
			return err
		}
	}
	return nil
}

func (m *Memory) find(ref source.Reference) (memoryObject, error) {
	if m.Allowed != nil && !m.Allowed(ref) {
		return memoryObject{}, source.NotAllowed("memory", ref)
	}
	object, ok := m.get(ref)
	if !ok {
		return memoryObject{}, source.NotFound("memory", ref)
	}
	return object, nil
}

func (m *Memory) get(ref source.Reference) (memoryObject, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	object, ok := m.objects[ref]
	return object, ok
}
