package workflow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/workflow/lessons"
	"github.com/headstart-mesh/headstart/shim/workflow/memo"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const (
	// exchangeEvery is how often nodes tell each other what they have learned from a workflow, and exchangeMost how long that may take.
	exchangeEvery, exchangeMost = time.Second, 5 * time.Second
	// lessonMost bounds what is learned in between, in bytes of bodies and headers: as JSON it fits into a lesson.
	lessonMost = lessons.Most / 2
	// choicesEvery is how often choices alone are told, of which each run has some: the stream is to have room for answers, which are told once.
	choicesEvery = 30 * time.Second
	// pagesMost is how many pages are heard at a time.
	pagesMost = 32
	// choiceBytes is what a choice counts for, with its task's place.
	choiceBytes = 64
)

// shared is what the nodes know together of a workflow that has a store.
type shared struct {
	stream *lessons.Stream // of the goroutine that exchanges

	mu     sync.Mutex
	lesson lessons.Lesson // that nobody was told yet
	bytes  int64
	busy   bool
	wrong  bool      // the last exchange has failed
	at     time.Time // when the last exchange began
	told   time.Time // when something was told last
}

// teach has others be told what the run has taught, if its workflow has a store, and there is room.
func (r *run) teach(bytes int64, l lessons.Lesson) {
	s := r.compiled.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.request.Workflow.GetState() == "" || s.bytes+bytes > lessonMost {
		return
	}
	s.bytes += bytes
	s.lesson.Rows, s.lesson.Choices = append(s.lesson.Rows, l.Rows...), append(s.lesson.Choices, l.Choices...)
}

// begin tells whether nobody exchanges, and how long it is until that may be done.
func (s *shared) begin(now time.Time) (wait time.Duration, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return 0, false
	}
	s.busy = true
	return exchangeEvery - now.Sub(s.at), true
}

// take takes what is to be told.
func (s *shared) take(now time.Time) lessons.Lesson {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = now
	if len(s.lesson.Rows) == 0 && now.Sub(s.told) < choicesEvery {
		return lessons.Lesson{}
	}
	l := s.lesson
	s.lesson, s.bytes, s.told = lessons.Lesson{}, 0, now
	return l
}

// end notes what has come of an exchange. again: there is more to tell. news: it has failed, unlike the one before.
func (s *shared) end(err error) (again, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = err != nil && !s.wrong
	s.wrong = err != nil
	s.busy = len(s.lesson.Rows) > 0 && err == nil
	return s.busy, news
}

// exchange has the node tell what it has learned from a workflow, and hear what others have, if the workflow has a store. Nobody waits for that.
func (o *Owner) exchange(c compiled, q Request) {
	if q.Workflow.GetState() == "" {
		return
	}
	wait, is := c.shared.begin(time.Now())
	if !is {
		return
	}
	o.background.Go(func() {
		for again := true; again; wait = exchangeEvery {
			select {
			case <-time.After(wait):
			case <-o.ctx.Done():
				return
			}
			err := o.exchangeBy(c, q.Workflow, c.shared.take(time.Now()))
			var news bool
			if again, news = c.shared.end(err); news && o.ctx.Err() == nil {
				o.config.Event(&nodeapi.Event{Function: q.Workflow.GetName(), Reason: "LearningNotShared", Field: filterapi.AnnotationState,
					Message: fmt.Sprintf("nodes do not tell each other what they learn from the workflow's runs: %.300s", err)})
			}
		}
	})
}

func (o *Owner) exchangeBy(c compiled, workflow *nodeapi.Function, l lessons.Lesson) error {
	ctx, cancel := context.WithTimeout(o.ctx, exchangeMost)
	defer cancel()
	store, err := o.config.Store(workflow.GetName(), workflow.GetState())
	if err == nil && len(l.Rows)+len(l.Choices) > 0 {
		err = c.shared.stream.Tell(ctx, store, l)
	}
	for page, more := 0, true; more && page < pagesMost && err == nil; page++ {
		var news []lessons.Lesson
		news, more, err = c.shared.stream.News(ctx, store)
		for _, l := range news {
			o.hear(c, namespaceOf(workflow.GetName()), l)
		}
	}
	return err
}

// hear feeds the tables with what another node has learned.
func (o *Owner) hear(c compiled, namespace string, l lessons.Lesson) {
	now := time.Now()
	for _, r := range l.Rows {
		if r.At.After(now) { // nodes have clocks of their own
			r.At = now
		}
		o.tables.Hear(memo.Of{Namespace: namespace, Function: r.Function, Revision: r.Revision}, memo.Key(r.Key),
			program.Answer{Status: r.Status, Header: r.Header, Body: r.Body}, r.At, now)
	}
	c.predictor.Feed(l.Choices)
}

// rowOf is what a call has taught.
func rowOf(w *work, k memo.Key) lessons.Row {
	return lessons.Row{Function: w.of.Function, Revision: w.of.Revision, Key: k[:], At: time.Now().Round(0), Status: w.answer.Status, Header: w.answer.Header, Body: w.answer.Body}
}
