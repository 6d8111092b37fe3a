package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// head is how many bytes come with the answer to the first question, whatever the value's
// size: about what a new connection sends without waiting (RFC 6928), so that a small value
// takes one round trip.
const head = 16 << 10

// notKept: nobody can tell of a value that is not watched any more whether it is another by now.
const notKept = -1

// object is one value, as ranged.Fetcher reads it.
type object struct {
	*Source
	ref source.Reference
	key string
	// held is the version that the caller has, empty for none.
	held string
	// watch is set by the first answer if the value does not come with it.
	watch *watch
}

func (s *Source) object(ref source.Reference, held string) *object {
	return &object{Source: s, ref: ref, key: ref.Bucket + ":" + ref.Key, held: held}
}

// Open implements ranged.Object.
func (o *object) Open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	if known == nil {
		same, err := o.still(ctx)
		if same {
			return ranged.Answer{}, &source.Unchanged{Fresh: notKept}
		}
		var answer ranged.Answer
		if err == nil {
			answer, err = o.first(ctx, end)
		}
		return answer, o.failure(err, false)
	}
	part, err := o.stream(ctx, at, end)
	if err != nil {
		return ranged.Answer{}, err
	}
	return ranged.Answer{Object: *known, Body: part, From: at}, nil
}

// first asks for the value's size and its beginning, and has the key watched from before
// that. A small value comes with the answer, which is of one version by itself.
func (o *object) first(ctx context.Context, end int64) (ranged.Answer, error) {
	// The line may have watched for another fetch before: whoever is done with it does not
	// wait for an UNWATCH.
	l, replies, err := o.lines.ask(ctx, []string{"UNWATCH"}, []string{"WATCH", o.key},
		[]string{"EXISTS", o.key}, []string{"STRLEN", o.key}, getRange(o.key, 0, head))
	if err != nil {
		return ranged.Answer{}, err
	}
	size, begins, err := o.look(l, replies[1:])
	switch {
	case err != nil:
		o.lines.put(l)
		return ranged.Answer{}, err
	case len(begins) == 0: // It is empty, or has gone after EXISTS.
		err := unchanged(ctx, l)
		o.lines.put(l)
		if errors.Is(err, errChanged) {
			return ranged.Answer{}, ranged.Again(source.Changed(o.config.Store, o.ref))
		}
		return o.answer(0, begins), err
	case len(begins) < head:
		o.lines.put(l)
		return o.answer(int64(len(begins)), begins), nil
	case size < head: // It has grown between STRLEN and GETRANGE.
		o.lines.put(l)
		return ranged.Answer{}, ranged.Again(source.Changed(o.config.Store, o.ref))
	}
	answer := o.answer(size, begins)
	o.watch = o.register(&watch{version: answer.Object.Version, line: l, turn: make(chan struct{}, 1)})
	if end = min(end, size); end > head {
		answer.Body = &rest{ctx: ctx, object: o, begins: strings.NewReader(begins), at: head, end: end}
	}
	return answer, nil
}

// look reads the replies to WATCH, EXISTS, STRLEN and, if it was sent, GETRANGE.
func (o *object) look(l *line, replies []reply) (size int64, begins string, err error) {
	defer func() { l.broken = l.broken || errors.Is(err, errProtocol) }()
	for _, r := range replies {
		if r.err != nil {
			return 0, "", r.err
		}
	}
	exists, err := replies[1].number()
	if err != nil {
		return 0, "", err
	}
	if exists == 0 {
		return 0, "", source.NotFound(o.config.Store, o.ref)
	}
	if size, err = replies[2].number(); err != nil || len(replies) < 4 {
		return size, "", err
	}
	begins, err = replies[3].bytes()
	return size, begins, err
}

func (o *object) answer(size int64, begins string) ranged.Answer {
	return ranged.Answer{Object: source.Object{Size: size, ContentType: contentType, Version: rand.Text(), Fresh: notKept}, Body: io.NopCloser(strings.NewReader(begins))}
}

// rest is the first part of a value: its beginning, and a stream that is asked for when that
// has been read.
type rest struct {
	ctx     context.Context // of the attempt that reads it
	object  *object
	begins  *strings.Reader
	at, end int64
	stream  *stream
}

func (r *rest) Read(p []byte) (int, error) {
	if r.begins.Len() > 0 {
		return r.begins.Read(p)
	}
	if r.stream == nil {
		s, err := r.object.stream(r.ctx, r.at, r.end)
		if err != nil {
			return 0, err
		}
		r.stream = s
	}
	return r.stream.Read(p)
}

func (r *rest) Close() error {
	if r.stream == nil {
		return nil
	}
	return r.stream.Close()
}

// failure turns an error into one that ranged.Fetcher knows. A reply is told by its code
// only: some repeat what was sent.
func (o *object) failure(err error, begun bool) error {
	var (
		own  *problem.Problem
		said refusal
	)
	if err == nil || errors.As(err, &own) || !errors.As(err, &said) {
		return err
	}
	text := string(said)
	code, _, _ := strings.Cut(text, " ")
	answer := fmt.Sprintf("it answers %.30q", code)
	switch code {
	case "NOAUTH", "WRONGPASS", "NOPERM", "DENIED":
		return source.Forbidden(o.config.Store, answer)
	case "WRONGTYPE":
		if begun {
			return source.Changed(o.config.Store, o.ref)
		}
		return source.Because(source.NotFound(o.config.Store, o.ref), errors.New("the key holds something else than a string"))
	case "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN":
		return ranged.Again(source.Unavailable(o.config.Store, answer))
	}
	for _, refused := range []string{"ERR AUTH", "ERR Client sent AUTH", "ERR invalid password"} {
		if strings.HasPrefix(text, refused) {
			return source.Forbidden(o.config.Store, "it answers "+fmt.Sprintf("%q", refused))
		}
	}
	if strings.HasPrefix(text, "ERR max number of clients") {
		return ranged.Again(source.Unavailable(o.config.Store, "it takes no more clients"))
	}
	return source.Unavailable(o.config.Store, answer)
}
