//go:build integration || cluster

package main

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// journal is what containerd and its shims log. Shims log through a pipe of
// containerd's, so what they said may arrive after what they did.
type journal struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // closed at the next Write
}

func newJournal() *journal { return &journal{grown: make(chan struct{})} }

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.grown)
	j.grown = make(chan struct{})
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// wait returns when a line holds all the words.
func (j *journal) wait(t *testing.T, words ...string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		j.mu.Lock()
		text, grown := j.text.String(), j.grown
		j.mu.Unlock()
		for line := range strings.Lines(text) {
			if holds(line, words) {
				return
			}
		}
		select {
		case <-grown:
		case <-deadline:
			t.Fatalf("containerd's log has no line with %q:\n%s", words, text)
		}
	}
}

func holds(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}
