package digest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow takes a time for each of its reads.
type slow struct {
	io.Reader
	each time.Duration
}

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(s.each)
	return s.Reader.Read(b)
}

func (slow) Close() error { return nil }

func open(b []byte, each time.Duration) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return slow{bytes.NewReader(b), each}, nil }
}

// A digest of much content leaves three quarters of a core to requests.
func TestAWorkerRestsBetweenBlocks(t *testing.T) {
	b := content(4 * digest.Block)
	want := of(t, b)
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w, done := digest.NewWorker(), make(chan struct{})
		began := time.Now()
		w.Add(digest.Job{Size: int64(len(b)), Open: open(b, time.Second), Done: func(got digest.Digest, err error) {
			if _, differs := want.Differs(got); differs || err != nil {
				t.Errorf("another digest: %v", err)
			}
			// Four blocks and the end, each after a rest but the first.
			if took := time.Since(began); took != 17*time.Second {
				t.Errorf("it took %v", took)
			}
			close(done)
		}})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		<-done
		end()
		<-ended
	})
}

func TestEachJobHasItsOutcome(t *testing.T) {
	b, broken := []byte("123456789"), errors.New("broken")
	crc, _ := digest.FromStore(checksums, "")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	w := digest.NewWorker()
	for _, c := range []struct {
		content []byte
		store   digest.Checksum
		fails   error
		want    error
	}{
		{content: b},
		{content: b, store: crc},
		{content: []byte("123456780"), store: crc, want: digest.ErrStoreDisagrees},
		{fails: broken, want: broken},
		{content: b[:8], want: io.ErrUnexpectedEOF},
	} {
		w.Add(digest.Job{Size: int64(len(b)), Store: c.store, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(c.content)), c.fails
		}, Done: func(d digest.Digest, err error) {
			if !errors.Is(err, c.want) || err == nil && d.Size != int64(len(b)) {
				t.Errorf("%d bytes, %v, want %v", d.Size, err, c.want)
			}
		}})
	}
	w.Add(digest.Job{Open: open(nil, 0), Done: func(digest.Digest, error) { end() }})
	w.Run(ctx)
}

func TestAWorkerEndsAmidABlockAndTakesNoMoreThanItsQueue(t *testing.T) {
	b := content(2 * digest.Block)
	synctest.Test(t, func(t *testing.T) {
		w := digest.NewWorker()
		ctx, end := context.WithTimeout(t.Context(), 2*time.Second) // it rests then
		defer end()
		outcomes := 0
		for w.Add(digest.Job{Size: int64(len(b)), Open: open(b, time.Second), Done: func(_ digest.Digest, err error) {
			if outcomes++; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}}) {
		}
		w.Run(ctx)
		if outcomes != 1 {
			t.Errorf("%d jobs were begun", outcomes)
		}
	})
}
