// Package lessons has nodes tell each other what they have learned from a workflow's runs, by a stream in the workflow's store: a node that
// runs it for the first time guesses as the others do. What it hears is worth a guess, and no more.
package lessons

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const (
	// prefix begins the names of streams.
	prefix = "headstart:learned:"
	// keptFor is how long a stream is kept to which nobody writes, and entriesMost about how many lessons it has: the newest.
	keptFor, entriesMost = time.Hour, 128
	// Most is how many bytes a lesson has at most, as it is written. pageMost is how many of them are read at a time.
	Most, pageMost = 256 << 10, 1 << 20
	// nameMost is how long the names in a lesson are, in bytes: of tasks, functions and their revisions.
	nameMost = 1024
	// statusMost is the largest status that an answer has (RFC 9110, section 15).
	statusMost = 999
)

var (
	//go:embed tell.lua
	tellSource string
	//go:embed news.lua
	newsSource string

	tellScript, newsScript = redis.NewScript(tellSource), redis.NewScript(newsSource)
)

// Lesson is what a node has learned.
type Lesson struct {
	Rows    []Row            `json:"rows,omitempty"`
	Choices []program.Choice `json:"choices,omitempty"`
}

// Row is what a revision of a function has answered to a request.
type Row struct {
	Function string      `json:"function"`
	Revision string      `json:"revision"`
	Key      []byte      `json:"key"`
	At       time.Time   `json:"at"`
	Status   int         `json:"status"`
	Header   http.Header `json:"header,omitempty"`
	Body     []byte      `json:"body,omitempty"`
}

// Stream is one workflow's, of one revision of its document. Its methods are for one goroutine at a time.
type Stream struct {
	key, me, last string
}

// New returns a stream of which nothing was read.
func New(workflow, revision string) *Stream {
	return &Stream{key: fmt.Sprintf("%s%s:%x", prefix, workflow, sha256.Sum256([]byte(revision))), me: rand.Text(), last: "-"}
}

// Tell adds a lesson.
func (s *Stream) Tell(ctx context.Context, c *redis.Client, l Lesson) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("writing what runs have taught: %w", err)
	}
	if len(b) > Most {
		return nil // nobody would read it
	}
	if err := tellScript.Run(ctx, c, []string{s.key}, s.me, b, entriesMost, keptFor.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("telling what runs have taught: %w", err)
	}
	return nil
}

// News are lessons of others that were not read before, some of them at a time. More tells whether there may be others.
func (s *Stream) News(ctx context.Context, c *redis.Client) (all []Lesson, more bool, err error) {
	page, err := newsScript.Run(ctx, c, []string{s.key}, s.me, s.last, Most, pageMost).StringSlice()
	if err == nil && len(page) == 0 {
		err = errors.New("the store returns nothing")
	}
	if err != nil {
		s.last = "-" // it may be no id, or none of a stream that is a new one
		return nil, false, fmt.Errorf("reading what others have learned: %w", err)
	}
	more = page[0] != s.last
	s.last = page[0]
	for _, text := range page[1:] {
		var l Lesson
		if json.Unmarshal([]byte(text), &l) == nil { // others write as well what is no lesson
			all = append(all, l.known())
		}
	}
	return all, more, nil
}

// known is what of a lesson can be one.
func (l Lesson) known() (k Lesson) {
	for _, r := range l.Rows {
		if r.Status >= http.StatusOK && r.Status <= statusMost && len(r.Key) == sha256.Size && len(r.Function) <= nameMost && len(r.Revision) <= nameMost {
			k.Rows = append(k.Rows, r)
		}
	}
	for _, c := range l.Choices {
		if c.Case >= 0 && len(c.Task) <= nameMost {
			k.Choices = append(k.Choices, c)
		}
	}
	return k
}
