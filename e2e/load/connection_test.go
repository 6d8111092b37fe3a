package load

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A connection that the other side may have closed meanwhile gets no request: it would be
// lost for that.
func TestAConnectionThatWasIdleForLongIsNotUsed(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	now := time.Now()
	s := &sender{idle: []*connection{{Conn: client, since: now}}}
	c := s.take(now.Add(idleMost - 1))
	if c == nil {
		t.Fatal("there is none, just before it is too old")
	}
	s.idle = append(s.idle, c)
	if c := s.take(now.Add(idleMost)); c != nil {
		t.Error("it is used")
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from the other end: %v, want that it is closed", err)
	}
}
