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

const (
	// waitEvery is how often an asker is told that the answer is still to come.
	waitEvery = 500 * time.Millisecond
	// writeWithin is how long an asker may take for a block: at 2 Mbit/s it has it by then.
	writeWithin = 10 * time.Second
	// referredFor bounds how long a node counts as one that takes an object from another one.
	referredFor = 10 * time.Minute
)

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

// answer is one that is being sent.
type answer struct {
	p      *Peers
	node   string // the asker
	key    Key
	q      question
	ctx    context.Context
	cancel context.CancelFunc

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
		err = a.during(func() (err error) {
			c, err = objects.Get(a.ctx, a.q.Namespace, a.key, a.q.Held)
			return err
		})
		if same, is := errors.AsType[*Unchanged](err); is {
			return c, a.same(*same), nil
		}
		if err != nil {
			return c, a.failed(problem.Of(err).Title), nil
		}
	}
	switch o := c.Object(); {
	case o.Size < 0 || o.Version == "":
		return c, a.failed(reasonObjectNotShared), nil
	case a.q.Version != "" && o.Version != a.q.Version:
		return c, a.failed(reasonObjectChanged), nil
	case a.q.Version == "" && o.Version == a.q.Held:
		return c, a.same(Unchanged{Fresh: o.Fresh}), nil
	}
	return c, "", nil
}

// send sends the object, or refers the asker to others for its blocks. It returns what was sent.
func (a *answer) send(c Copy) string {
	of := held{a.key, c.Object().Version}
	t, from := a.p.join(of, a.node, a.q.Only)
	if t == nil {
		return a.failed(reasonBusy)
	}
	sent, rest := answerBytes, func() error { return a.blocks(c, t) }
	if len(from) > 0 {
		sent, rest = answerReferral, func() error { return a.digests(c, from) }
	}
	about, err := json.Marshal(c.Object())
	if err == nil {
		err = a.frame(frameObject, about)
	}
	if err == nil {
		err = rest()
	}
	a.p.leave(of, t, err == nil)
	return sent
}

// blocks sends the blocks that are asked for.
func (a *answer) blocks(c Copy, t *taker) error {
	room := make([]byte, copySize)
	for i := a.q.From; ; i++ {
		sum, n, err := a.block(c, i)
		if errors.Is(err, io.EOF) {
			return a.flush()
		}
		if err != nil {
			return err
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
		a.p.progress(t, i+1)
	}
}

// digests refers the asker to others, and sends it the digests of the blocks that are asked for. The asker leaves
// when it has the blocks.
func (a *answer) digests(c Copy, from []string) error {
	names, err := json.Marshal(from)
	if err == nil {
		err = a.frame(frameReferral, names)
	}
	for i := a.q.From; err == nil; i++ {
		var sum Digest
		if sum, _, err = a.block(c, i); err == nil {
			err = a.frame(frameDigest, sum[:])
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	_ = a.during(func() error { // it ends when the asker has left
		select {
		case <-a.ctx.Done():
		case <-time.After(referredFor):
		}
		return nil
	})
	return nil
}

// block waits for a block. What has been sent so far does not wait with it.
func (a *answer) block(c Copy, i int64) (sum Digest, n int, err error) {
	soon, cancel := context.WithCancel(a.ctx)
	cancel()
	if sum, n, err = c.Block(soon, i); err == nil || errors.Is(err, io.EOF) {
		return sum, n, err
	}
	err = a.during(func() error {
		sum, n, err = c.Block(a.ctx, i)
		return err
	})
	return sum, n, err
}

// during does what may take time, and tells the asker meanwhile that the answer is still to come.
func (a *answer) during(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for {
		err := a.frame(frameWait, nil)
		if err == nil {
			err = a.flush()
		}
		if err != nil { // the asker has gone
			a.cancel()
			return errors.Join(<-done, err)
		}
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
	}
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

func (a *answer) failed(title string) string { return a.last(title, frameFailed, []byte(title)) }

func (a *answer) frame(kind byte, body []byte) error {
	a.hurry()
	return writeFrame(a.out, kind, body)
}

// hurry bounds what is written next.
func (a *answer) hurry() { _ = a.control.SetWriteDeadline(time.Now().Add(writeWithin)) }

func (a *answer) flush() error {
	if err := a.out.Flush(); err != nil {
		return err
	}
	return a.control.Flush()
}
