package digest

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrStoreDisagrees is for content that is not what the store's checksum is of.
var ErrStoreDisagrees = errors.New("the content does not have the store's checksum")

const (
	// queueMost is how many jobs wait. What finds no place is for the next scrub.
	queueMost = 1024
	// pause is how much longer the rest after a block is than the work on it: digests take at most a quarter of one
	// core and of the disk, and nobody waits for them. The thread keeps its priority: with a lower one it would get no core on a busy
	// node, and the daemon's garbage collector, which stops all threads, would wait for it.
	pause = 3
)

// Job is content to compute a digest of.
type Job struct {
	Size  int64
	Store Checksum // the zero value for none
	Open  func() (io.ReadCloser, error)
	// Done gets the digest, or the error of opening or reading; ErrStoreDisagrees comes with the digest. The worker waits
	// for it.
	Done func(Digest, error)
}

// Worker computes digests one after the other, beside requests.
type Worker struct{ jobs chan Job }

// NewWorker returns a worker that waits for Run.
func NewWorker() *Worker { return &Worker{jobs: make(chan Job, queueMost)} }

// Add has a job done some time. It is false if too many wait.
func (w *Worker) Add(j Job) bool {
	select {
	case w.jobs <- j:
		return true
	default:
		return false
	}
}

// Run does the jobs until the context is over, and forgets those that it has not begun.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case j := <-w.jobs:
			j.Done(j.do(ctx))
		case <-ctx.Done():
		}
	}
}

func (j Job) do(ctx context.Context) (Digest, error) {
	content, err := j.Open()
	if err != nil {
		return Digest{}, err
	}
	defer content.Close()
	paced := &pacer{Reader: content, ctx: ctx, since: time.Now()}
	sum := j.Store.New()
	if sum == nil {
		return Of(ctx, paced, j.Size)
	}
	d, err := Of(ctx, paced, j.Size, sum)
	if err == nil && !j.Store.Agrees(sum) {
		err = ErrStoreDisagrees
	}
	return d, err
}

// pacer is a reader that rests before each block for as long as the block before it took, times pause.
type pacer struct {
	io.Reader
	ctx   context.Context
	since time.Time // when the last rest ended
	read  int64
}

func (p *pacer) Read(b []byte) (int, error) {
	if p.read >= Block {
		select {
		case <-time.After(pause * time.Since(p.since)):
		case <-p.ctx.Done():
			return 0, context.Cause(p.ctx)
		}
		p.since, p.read = time.Now(), 0
	}
	n, err := p.Reader.Read(b)
	p.read += int64(n)
	return n, err
}
