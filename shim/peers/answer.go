package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
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

// answer is one that is being sent.
type answer struct {
	p    *Peers
	node string // the asker
	key  objects.Key
	q    question
	ctx  context.Context // ends when the asker leaves

	out     *bufio.Writer
	control *http.ResponseController
}

// find finds the object. If the asker has it, the error is a *source.Unchanged.
func (a *answer) find() (c Copy, err error) {
	known := false
	switch {
	case a.q.Write != "":
		c, known = a.p.config.Objects.Written(a.key, a.q.Write)
	case a.q.Version != "":
		c, known = a.p.config.Objects.Held(a.ctx, a.q.Namespace, a.key, a.q.Version)
	}
	if !known {
		if err := a.p.chosen(a.key, a.q); err != nil {
			return nil, err
		}
		_ = a.flush() // that the node is there: the store may take its time
		if c, err = a.p.config.Objects.Get(a.ctx, a.q.Namespace, a.key); err != nil {
			return nil, err
		}
	}
	switch o := c.Object(); {
	case o.Size < 0 || o.Version == "" || len(o.Version) > versionMost:
		err = errObjectNotShared
	case a.q.Version != "" && o.Version != a.q.Version:
		err = errObjectChanged
	case (a.q.Version == "" || a.q.Write != "") && o.Version == a.q.Held:
		err = &source.Unchanged{Fresh: o.Fresh}
	}
	return c, err
}

// send sends the blocks that are asked for, or refers the asker to others for them and sends their digests. An error is
// for end: there is no next block. Who has gone is told nothing.
func (a *answer) send(c Copy) (said string, err error) {
	about, err := json.Marshal(c.Object())
	if err != nil || len(about) > sizes[frameObject][1] {
		return "", errObjectNotShared
	}
	from, leave := a.p.join(held{a.key, c.Object().Version}, a.node, a.q.Only)
	if leave == nil {
		return "", errBusy
	}
	defer leave()
	said, err = answerBytes, a.frame(frameObject, about)
	if len(from) > 0 {
		names, _ := json.Marshal(from) // texts
		said, err = answerReferral, errors.Join(err, a.frame(frameReferral, names))
	}
	next, end := blocks(a.ctx, c, a.q.From)
	defer end()
	for i := a.q.From; err == nil; i++ {
		b := next()
		switch {
		case errors.Is(b.err, io.EOF):
			return said, nil
		case b.err != nil:
			return "", b.err
		case len(from) > 0:
			err = a.frame(frameDigest, b.sum[:])
		default:
			err = a.block(io.NewSectionReader(c, i*digest.Block, int64(b.size)), b.sum)
		}
	}
	return said, nil
}

// block is what Copy.Block says of one.
type block struct {
	sum  digest.Sum
	size int
	err  error
}

// blocks returns what waits for one block after the other: a digest is computed while the block before is sent, so that
// the network does not wait for that. end comes after the last of them.
func blocks(ctx context.Context, c Copy, from int64) (next func() block, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	asked, found := make(chan int64, 1), make(chan block, 1)
	var looking sync.WaitGroup
	looking.Go(func() {
		for i := range asked {
			var b block
			b.sum, b.size, b.err = c.Block(ctx, i)
			found <- b
		}
	})
	asked <- from
	return func() block {
			b := <-found
			from++
			asked <- from
			return b
		}, func() {
			cancel()
			close(asked)
			<-found
			looking.Wait()
		}
}

// block sends a block.
func (a *answer) block(content *io.SectionReader, sum digest.Sum) error {
	a.hurry()
	_, _ = a.out.Write(head(frameBlock, len(sum)+int(content.Size()))) // an error of out stays
	_, _ = a.out.Write(sum[:])
	n, err := io.Copy(a.out, content)
	a.p.metrics.served.Add(float64(n))
	if err != nil || n < content.Size() {
		return errors.Join(err, io.ErrUnexpectedEOF) // it ends amid a frame
	}
	return a.flush()
}

// end sends the last frame of an answer that has something to say in place of bytes, and returns what that is.
func (a *answer) end(err error) (said string) {
	p := problem.Of(err)
	said, kind, body := p.Title, frameFailed, failure(p)
	if same, is := errors.AsType[*source.Unchanged](err); is {
		said, kind = answerSame, frameSame
		body, _ = json.Marshal(same) // a number
	}
	_ = a.frame(kind, body) // the asker may have gone
	return said
}

func (a *answer) frame(kind byte, body []byte) error {
	a.hurry()
	_, _ = a.out.Write(head(kind, len(body))) // an error of out stays
	_, _ = a.out.Write(body)
	return a.flush()
}

// hurry bounds what is written until it is flushed.
func (a *answer) hurry() { _ = a.control.SetWriteDeadline(time.Now().Add(writeWithin)) }

func (a *answer) flush() error {
	if err := a.out.Flush(); err != nil {
		return err
	}
	err := a.control.Flush()
	_ = a.control.SetWriteDeadline(time.Time{}) // what comes next may take its time
	return err
}
