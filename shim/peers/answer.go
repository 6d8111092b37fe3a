package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// writeWithin is how long an asker may take for a block: at 2 Mbit/s it has it by then.
const writeWithin = 10 * time.Second

// What an answer is to the metric, besides the title of a problem.
const (
	answerSame     = "Same"
	answerBytes    = "Bytes"
	answerReferral = "Referral"
)

// Problems that only other nodes see, within an answer.
const (
	reasonObjectChanged   = "PeerObjectChanged"
	reasonObjectNotShared = "PeerObjectNotShared"
	reasonBusy            = "PeerBusy"
)

var (
	errObjectChanged   = problem.New(http.StatusConflict, reasonObjectChanged, "", "the store has another version")
	errObjectNotShared = problem.New(http.StatusConflict, reasonObjectNotShared, "", "the object cannot be shared")
	errTaken           = problem.New(http.StatusServiceUnavailable, reasonBusy, "", "the node serves others already")
)

// answer is one that is being sent.
type answer struct {
	p    *Peers
	node string // the asker
	key  Key
	q    question
	ctx  context.Context // ends when the asker leaves

	out     *bufio.Writer
	control *http.ResponseController
}

// find finds the object, or else says so: what it has answered, or an error if it has not.
func (a *answer) find() (c Copy, said string, err error) {
	objects, known := a.p.config.Objects, false
	if a.q.Version != "" {
		c, known = objects.Held(a.ctx, a.q.Namespace, a.key, a.q.Version)
	}
	if !known {
		if err := a.p.chosen(a.key, a.q); err != nil {
			return nil, "", err
		}
		if err := a.flush(); err != nil { // that the node is there: the store may take its time
			return nil, answerBytes, nil //nolint:nilerr // the asker has gone
		}
		c, err = objects.Get(a.ctx, a.q.Namespace, a.key, a.q.Held)
		if same, is := errors.AsType[*Unchanged](err); is {
			return c, a.same(*same), nil
		}
		if err != nil {
			return c, a.failed(err), nil
		}
	}
	switch o := c.Object(); {
	case o.Size < 0 || o.Version == "" || len(o.Version) > versionMost:
		return c, a.failed(errObjectNotShared), nil
	case a.q.Version != "" && o.Version != a.q.Version:
		return c, a.failed(errObjectChanged), nil
	case a.q.Version == "" && o.Version == a.q.Held:
		return c, a.same(Unchanged{Fresh: o.Fresh}), nil
	}
	return c, "", nil
}

// send sends the object, or refers the asker to others for its blocks. It returns what was sent.
func (a *answer) send(c Copy) string {
	about, err := json.Marshal(c.Object())
	if err != nil || len(about) > sizes[frameObject][1] {
		return a.failed(errObjectNotShared)
	}
	from, leave := a.p.join(held{a.key, c.Object().Version}, a.node, a.q.Only)
	if leave == nil {
		return a.failed(errTaken)
	}
	defer leave()
	said := answerBytes
	if len(from) > 0 {
		said = answerReferral
	}
	if a.frame(frameObject, about) != nil {
		return said // the asker has gone
	}
	if len(from) > 0 {
		err = a.digests(c, from)
	} else {
		err = a.blocks(c)
	}
	if none, is := errors.AsType[noBlock](err); is {
		return a.failed(none.error)
	}
	return said
}

// noBlock is why there is no next block. Any other error ends an answer amid a frame.
type noBlock struct{ error }

// blocks sends the blocks that are asked for.
func (a *answer) blocks(c Copy) error {
	room := make([]byte, copySize)
	for i := a.q.From; ; i++ {
		sum, n, err := a.block(c, i)
		if err != nil || n == 0 {
			return errors.Join(err, a.flush())
		}
		a.hurry()
		if err := writeHead(a.out, frameBlock, len(sum)+n); err != nil {
			return err
		}
		if _, err := a.out.Write(sum[:]); err != nil {
			return err
		}
		sent, err := io.CopyBuffer(struct{ io.Writer }{a.out}, io.NewSectionReader(c, i*BlockSize, int64(n)), room)
		a.p.metrics.served.Add(float64(sent))
		if err != nil || sent < int64(n) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
}

// digests refers the asker to others, and sends it the digests of the blocks that are asked for.
func (a *answer) digests(c Copy, from []string) error {
	names, err := json.Marshal(from)
	if err == nil {
		err = a.frame(frameReferral, names)
	}
	for i := a.q.From; err == nil; i++ {
		sum, n, missing := a.block(c, i)
		if missing != nil || n == 0 {
			return errors.Join(missing, a.flush())
		}
		err = a.frame(frameDigest, sum[:])
	}
	return err
}

// block waits for a block; n is 0 after the last one. What has been sent so far does not wait with it.
func (a *answer) block(c Copy, i int64) (sum Digest, n int, err error) {
	soon, cancel := context.WithCancel(a.ctx)
	cancel()
	if sum, n, err = c.Block(soon, i); err != nil && !errors.Is(err, io.EOF) {
		if err := a.flush(); err != nil {
			return sum, 0, err
		}
		sum, n, err = c.Block(a.ctx, i)
	}
	switch {
	case errors.Is(err, io.EOF):
		return sum, 0, nil
	case err != nil:
		return sum, 0, noBlock{err}
	}
	return sum, n, nil
}

// last sends the last frame of an answer, and returns what that is.
func (a *answer) last(said string, kind byte, body []byte) string {
	if a.frame(kind, body) == nil {
		_ = a.flush() // the asker may have gone
	}
	return said
}

func (a *answer) same(u Unchanged) string {
	about, _ := json.Marshal(u) // a number
	return a.last(answerSame, frameSame, about)
}

func (a *answer) failed(err error) string {
	p := problem.Of(err)
	return a.last(p.Title, frameFailed, failure(p))
}

func (a *answer) frame(kind byte, body []byte) error {
	a.hurry()
	return writeFrame(a.out, kind, body)
}

// hurry bounds what is written until it is flushed.
func (a *answer) hurry() { _ = a.control.SetWriteDeadline(time.Now().Add(writeWithin)) }

func (a *answer) flush() error {
	a.hurry()
	if err := a.out.Flush(); err != nil {
		return err
	}
	err := a.control.Flush()
	_ = a.control.SetWriteDeadline(time.Time{}) // what comes next may take its time
	return err
}
