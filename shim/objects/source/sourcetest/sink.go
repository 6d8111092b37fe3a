package sourcetest

import (
	"io"
	"sync"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Sink takes an object and notes what a Source must not do.
type Sink struct {
	// OnBegin and OnWrite are called first, unless they are nil; their errors are the answer.
	OnBegin, OnWrite func() error
	// Object is what Begin was told, Content what came. They are read when Fetch has returned.
	Object  source.Object
	Content []byte

	inOrder bool // each write must begin where the last one ended

	mu     sync.Mutex
	begins int
	closed bool
	wrong  []string
}

// Begin is what a Fetch is given.
func (s *Sink) Begin(object source.Object) (io.WriterAt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins++
	s.Object, s.Content = object, make([]byte, max(0, object.Size))
	if s.OnBegin != nil {
		if err := s.OnBegin(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// WriteAt implements io.WriterAt.
func (s *Sink) WriteAt(p []byte, at int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.wrong = append(s.wrong, "it writes after Fetch has returned")
	}
	if s.Object.Size < 0 && at == int64(len(s.Content)) {
		s.Content = append(s.Content, p...)
		return len(p), nil
	}
	if at < 0 || s.inOrder || at+int64(len(p)) > s.Object.Size {
		s.wrong = append(s.wrong, "it writes outside of the object")
		return 0, io.ErrShortWrite
	}
	if s.OnWrite != nil {
		if err := s.OnWrite(); err != nil {
			return 0, err
		}
	}
	return copy(s.Content[at:], p), nil
}

// ended is called when Fetch has returned.
func (s *Sink) ended(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, wrong := range s.wrong {
		t.Error(wrong)
	}
}
