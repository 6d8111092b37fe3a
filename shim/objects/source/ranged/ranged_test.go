package ranged_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const part = 10

var ref = source.Reference{Scheme: source.SchemeS3, Bucket: "inputs", Key: "k"}

// object answers as open does, and notes what it was asked for.
type object struct {
	open func(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error)

	mu    sync.Mutex
	asked []string
}

func (o *object) Open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	o.mu.Lock()
	asked := fmt.Sprintf("%d-%d", at, end)
	if end == math.MaxInt64 {
		asked = fmt.Sprintf("%d-", at)
	}
	o.asked = append(o.asked, asked)
	o.mu.Unlock()
	return o.open(ctx, at, end, known)
}

func body(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// broken ends before its time.
func broken(s string) io.ReadCloser {
	return io.NopCloser(io.MultiReader(strings.NewReader(s), iotest.ErrReader(io.ErrUnexpectedEOF)))
}

// A kept connection of which the store knows nothing any more ends before a fetch would wait for it.
func TestKeptConnectionsAreProbed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := ranged.Dialer(address.Rule{Host: "127.0.0.1"}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(name int) (n int) {
		err := raw.Control(func(fd uintptr) {
			var failed error
			if n, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name); failed != nil {
				t.Error(failed)
			}
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	seconds := option(unix.TCP_KEEPIDLE) + option(unix.TCP_KEEPCNT)*option(unix.TCP_KEEPINTVL)
	if found := time.Duration(seconds) * time.Second; found > ranged.Stall {
		t.Errorf("it is found after %v", found)
	}
}

// A store without parts is read by one stream, which is gone on with where it broke as long
// as it is of the same version: the beginning is skipped when it comes again.
func TestOneStream(t *testing.T) {
	text := strings.Repeat("0123456789", 5) + "x"
	for name, in := range map[string]struct {
		size    int64
		version string
		breaks  []string // after which bytes the first answers break
		asked   string
		title   string // of the problem
	}{
		"whole":              {51, "v", nil, "0-10", ""},
		"without a version":  {51, "", nil, "0-10", ""},
		"unknown size":       {-1, "v", nil, "0-10", ""},
		"it breaks":          {51, "v", []string{text[:7], text[:33]}, "0-10 7-51 33-51", ""},
		"unknown, it breaks": {-1, "v", []string{text[:7]}, "0-10 7-", ""},
		"before a byte":      {51, "", []string{""}, "0-10 0-51", ""},
		"it cannot go on":    {51, "", []string{text[:7]}, "0-10", "StoreUnavailable"},
		"it breaks often":    {51, "v", []string{text[:7], text[:7], text[:8], text[:9], text[:10]}, "0-10 7-51 7-51 8-51 9-51 10-51", ""},
		"too often":          {51, "v", []string{text[:7], text[:8], text[:9], text[:10], text[:11]}, "0-10 7-51 8-51 9-51 10-51", "StoreUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				breaks := in.breaks
				o := &object{open: func(context.Context, int64, int64, *source.Object) (ranged.Answer, error) {
					answer := ranged.Answer{Object: source.Object{Size: in.size, Version: in.version}, Body: body(text), Whole: true}
					if len(breaks) > 0 {
						answer.Body, breaks = broken(breaks[0]), breaks[1:]
					}
					return answer, nil
				}}
				s := &sourcetest.Sink{}
				err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin)
				if got := strings.Join(o.asked, " "); got != in.asked {
					t.Errorf("asked for %s, want %s", got, in.asked)
				}
				if in.title != "" && problem.Of(err).Title != in.title || in.title == "" && (err != nil || string(s.Content) != text || s.Object.Size != in.size) {
					t.Errorf("%q of %+v, %v", s.Content, s.Object, err)
				}
			})
		})
	}
}

// However the answers are cut, the parts come together, each from where it broke.
func TestParts(t *testing.T) {
	text := []byte(strings.Repeat("0123456789abc", 20))
	o := &object{open: func(_ context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
		answer := ranged.Answer{Object: source.Object{Size: int64(len(text)), Version: "v"}, From: at}
		if end = min(end, int64(len(text))); end-at > 4 {
			answer.Body = broken(string(text[at : at+3]))
		} else {
			answer.Body = body(string(text[at:end]))
		}
		return answer, nil
	}}
	synctest.Test(t, func(t *testing.T) {
		s := &sourcetest.Sink{}
		if err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin); err != nil || !bytes.Equal(s.Content, text) {
			t.Errorf("%q, %v", s.Content, err)
		}
	})
}

// Fetches at the same time share their connections, but for one that each has, and a store that
// gives nothing of one object holds up none of the others.
func TestFetchesShareConnections(t *testing.T) {
	const fetches, size = 5, 40 * part
	text := strings.Repeat("x", size)
	synctest.Test(t, func(t *testing.T) {
		var open, most atomic.Int64
		answer := func(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
			if now := open.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer open.Add(-1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			end = min(end, size)
			return ranged.Answer{Object: source.Object{Size: size, Version: "v"}, From: at, Body: body(text[at:end])}, ctx.Err()
		}
		f := ranged.New("edge", part)
		stuck, free := context.WithCancel(t.Context())
		var all, others sync.WaitGroup
		all.Go(func() {
			o := &object{open: func(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
				if known == nil {
					return answer(ctx, at, end, known)
				}
				<-ctx.Done()
				return ranged.Answer{}, ctx.Err()
			}}
			if err := f.Fetch(stuck, ref, o, (&sourcetest.Sink{}).Begin); err == nil {
				t.Error("what does not come is there")
			}
		})
		for range fetches {
			others.Go(func() {
				s := &sourcetest.Sink{}
				if err := f.Fetch(t.Context(), ref, &object{open: answer}, s.Begin); err != nil || string(s.Content) != text {
					t.Errorf("%d bytes, %v", len(s.Content), err)
				}
			})
		}
		others.Wait()
		free()
		all.Wait()
		if most := most.Load(); most < fetches || most > fetches+ranged.Connections {
			t.Errorf("%d parts are read at the same time", most)
		}
	})
}

// However many fetches a namespace has, of objects of which nothing comes, another one's fetch has a
// connection at once, and one of those that all share.
func TestAttackFetchesOfANamespaceLeaveOthersConnections(t *testing.T) {
	const size = 10 * part
	text := strings.Repeat("x", size)
	synctest.Test(t, func(t *testing.T) {
		f := ranged.New("edge", part)
		flood, end := context.WithCancel(t.Context())
		var floods sync.WaitGroup
		for n := range 3 * ranged.Slots {
			floods.Go(func() {
				o := &object{open: func(ctx context.Context, _, _ int64, known *source.Object) (ranged.Answer, error) {
					if known == nil {
						return ranged.Answer{Object: source.Object{Size: size, Version: "v"}, Body: body(text[:part])}, nil
					}
					<-ctx.Done()
					return ranged.Answer{}, ctx.Err()
				}}
				ctx := fair.For(flood, fmt.Sprintf("flood/f%d", n))
				if err := f.Fetch(ctx, ref, o, (&sourcetest.Sink{}).Begin); err == nil {
					t.Error("what does not come is there")
				}
			})
		}
		synctest.Wait()
		s, begun := &sourcetest.Sink{}, time.Now()
		o := &object{open: func(_ context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
			time.Sleep(time.Second)
			return ranged.Answer{Object: source.Object{Size: size, Version: "v"}, From: at, Body: body(text[at:min(end, size)])}, nil
		}}
		err := f.Fetch(fair.For(t.Context(), "small/one"), ref, o, s.Begin)
		if took := time.Since(begun); err != nil || string(s.Content) != text || took > 6*time.Second {
			t.Errorf("%d bytes after %v, %v", len(s.Content), took, err)
		}
		end()
		floods.Wait()
	})
}

// A link is shared by connections. Beside the single fetch of another namespace, a namespace with hundreds has as many
// of them as that fetch has; before and after it has more.
func TestAttackFetchesOfANamespaceLeaveOthersTheLink(t *testing.T) {
	const size, alone = (1 + 10*ranged.Connections) * part, 60
	text := strings.Repeat("x", size)
	synctest.Test(t, func(t *testing.T) {
		f := ranged.New("edge", part)
		fetch := func(ctx context.Context, function string, underWay *atomic.Int64) error {
			o := &object{open: func(_ context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
				underWay.Add(1)
				defer underWay.Add(-1)
				time.Sleep(time.Second)
				return ranged.Answer{Object: source.Object{Size: size, Version: "v"}, From: at,
					Body: body(text[at:min(end, size)])}, nil
			}}
			return f.Fetch(fair.For(ctx, function), ref, o, (&sourcetest.Sink{}).Begin)
		}
		flood, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var floods, small atomic.Int64 // parts under way
		for n := range 3 * ranged.Slots {
			all.Go(func() {
				for flood.Err() == nil {
					_ = fetch(flood, fmt.Sprintf("flood/f%d", n), &floods) // its end is an error
				}
			})
		}
		// The flood's parts end at whole seconds, and the other one's at half ones.
		time.Sleep(1500 * time.Millisecond)
		if n := floods.Load(); n < alone {
			t.Errorf("alone it has %d connections", n)
		}
		done := make(chan error, 1)
		go func() { done <- fetch(t.Context(), "small/one", &small) }()
		time.Sleep(1300 * time.Millisecond) // its first part is there, which says how many others there are
		for over := false; !over; {
			if flood, small := floods.Load(), small.Load(); flood > ranged.Connections || small < ranged.Connections {
				t.Errorf("beside another that has %d connections it has %d", small, flood)
			}
			select {
			case err := <-done:
				if over = true; err != nil {
					t.Error(err)
				}
			case <-time.After(time.Second):
			}
		}
		time.Sleep(1300 * time.Millisecond)
		if n := floods.Load(); n < alone {
			t.Errorf("alone again it has %d connections", n)
		}
		end()
		all.Wait()
	})
}

// A store that is away for some seconds is asked until it is back, and found soon after; one that
// is gone is asked for as long as is said, and not much more often.
func TestAStoreThatIsAway(t *testing.T) {
	refused, full := errors.New("connection refused"), ranged.Again(source.Unavailable("edge", "it answers 503"))
	for name, in := range map[string]struct {
		fails error
		back  time.Duration
		title string
	}{
		"restarts":         {refused, 3 * time.Second, ""},
		"for long":         {refused, 8 * time.Second, ""},
		"is overloaded":    {full, 3 * time.Second, ""},
		"is gone":          {refused, time.Hour, "StoreUnavailable"},
		"stays overloaded": {full, time.Hour, "StoreUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				o := &object{open: func(context.Context, int64, int64, *source.Object) (ranged.Answer, error) {
					if time.Since(begun) < in.back {
						return ranged.Answer{}, in.fails
					}
					return ranged.Answer{Object: source.Object{Size: 7, Version: "v"}, Body: body("content")}, nil
				}}
				s := &sourcetest.Sink{}
				err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin)
				took := time.Since(begun)
				if in.title == "" && (err != nil || string(s.Content) != "content" || took > in.back+2*time.Second) {
					t.Errorf("%q after %v, %v", s.Content, took, err)
				}
				if in.title != "" && (problem.Of(err).Title != in.title || took != ranged.Away) {
					t.Errorf("after %v: %v", took, err)
				}
				if n := len(o.asked); n > 30 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

// A store that takes the question and says nothing is asked again by other connections.
func TestAStoreThatIsSilent(t *testing.T) {
	for name, in := range map[string]struct {
		silent int // how many times
		title  string
		within time.Duration
	}{
		"twice":    {ranged.Stalls - 1, "", ranged.Patience},
		"for good": {math.MaxInt, "StoreTimeout", ranged.Patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				o := &object{open: func(ctx context.Context, _, _ int64, _ *source.Object) (ranged.Answer, error) {
					if tries++; tries <= in.silent {
						<-ctx.Done()
						return ranged.Answer{}, ctx.Err()
					}
					return ranged.Answer{Object: source.Object{Size: 7, Version: "v"}, Body: body("content")}, nil
				}}
				begun := time.Now()
				err := ranged.New("edge", part).Fetch(t.Context(), ref, o, (&sourcetest.Sink{}).Begin)
				if in.title == "" && err != nil || in.title != "" && problem.Of(err).Title != in.title || tries != ranged.Stalls {
					t.Errorf("after %d tries: %v", tries, err)
				}
				if took := time.Since(begun); took > in.within {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The second answer is of another object.
func TestAnotherVersionIsAChange(t *testing.T) {
	for name, second := range map[string]source.Object{"version": {Size: 20, Version: "w"}, "size": {Size: 21, Version: "v"}} {
		o := &object{open: func(_ context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
			answer := ranged.Answer{Object: source.Object{Size: 20, Version: "v"}, From: at, Body: body(strings.Repeat("x", int(end-at)))}
			if known != nil {
				answer.Object = second
			}
			return answer, nil
		}}
		if err := ranged.New("edge", part).Fetch(t.Context(), ref, o, (&sourcetest.Sink{}).Begin); problem.Of(err).Title != "InputChanged" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a body that has a byte now and then.
func slow(b io.Reader) io.ReadCloser { return io.NopCloser(pausing{iotest.OneByteReader(b)}) }

type pausing struct{ io.Reader }

func (p pausing) Read(b []byte) (int, error) {
	time.Sleep(ranged.Stall / 2)
	return p.Reader.Read(b)
}

// A part is asked for again also when it has been on its way for long, as it comes slowly.
func TestASlowPartIsGoneOnWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "0123456789"
		tries := 0
		o := &object{open: func(_ context.Context, at, _ int64, _ *source.Object) (ranged.Answer, error) {
			answer := ranged.Answer{Object: source.Object{Size: part, Version: "v"}, From: at, Body: slow(strings.NewReader(text[at:]))}
			if tries++; tries == 1 {
				answer.Body = slow(broken(text[:part-1]))
			}
			return answer, nil
		}}
		s, begun := &sourcetest.Sink{}, time.Now()
		err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin)
		if took := time.Since(begun); err != nil || string(s.Content) != text || took < ranged.Patience {
			t.Errorf("%q after %v, %v", s.Content, took, err)
		}
	})
}

// A connection that a full link starves holds the prefix up no longer than another one takes to read a part. That goes on
// where the slow one was.
func TestAFreeConnectionTakesTheOldestPart(t *testing.T) {
	for name, version := range map[string]string{"with a version": "v", "without": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat("0123456789", 30)
				starved := func(ctx context.Context) io.Reader {
					return readerFunc(func([]byte) (int, error) {
						select {
						case <-ctx.Done():
							return 0, ctx.Err()
						case <-time.After(5 * time.Second):
							return 0, io.ErrUnexpectedEOF
						}
					})
				}
				o := &object{}
				o.open = func(ctx context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
					time.Sleep(100 * time.Millisecond)
					answer := ranged.Answer{Object: source.Object{Size: 300, Version: version}, Body: body(text[at:end]), From: at}
					if at == 10 {
						answer.Body = io.NopCloser(io.MultiReader(strings.NewReader(text[10:13]), starved(ctx)))
					}
					return answer, nil
				}
				s, began := &sourcetest.Sink{}, time.Now()
				err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin)
				took, gone := time.Since(began), slices.Contains(o.asked, "13-20")
				if version == "" { // nobody knows whether the rest is of the same object
					if problem.Of(err).Title != "StoreUnavailable" || gone {
						t.Errorf("asked for %v, %v", o.asked, err)
					}
					return
				}
				if err != nil || string(s.Content) != text || !gone || took > time.Second {
					t.Errorf("%q after %v, asked for %v, %v", s.Content, took, o.asked, err)
				}
			})
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// What has waited for others is tried as often as anything else.
func TestWaitingForOthersIsNoTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "0123456789"
		f := ranged.New("edge", part)
		answers := func(body func() io.ReadCloser) *object {
			return &object{open: func(context.Context, int64, int64, *source.Object) (ranged.Answer, error) {
				return ranged.Answer{Object: source.Object{Size: part, Version: "v"}, Body: body()}, nil
			}}
		}
		var others sync.WaitGroup
		for range ranged.Slots {
			others.Go(func() {
				o := answers(func() io.ReadCloser { return slow(strings.NewReader(text)) })
				if err := f.Fetch(t.Context(), ref, o, (&sourcetest.Sink{}).Begin); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		tries := 0
		s, begun := &sourcetest.Sink{}, time.Now()
		err := f.Fetch(t.Context(), ref, answers(func() io.ReadCloser {
			if tries++; tries == 1 {
				return broken("")
			}
			return body(text)
		}), s.Begin)
		if took := time.Since(begun); err != nil || string(s.Content) != text || took < ranged.Patience {
			t.Errorf("%q after %v, %v", s.Content, took, err)
		}
		others.Wait()
	})
}

// A part that broke off is not gone on with where nobody can tell whether what comes is of
// the same object; one of which nothing has come is asked for again.
func TestAPartWithoutAVersion(t *testing.T) {
	for name, in := range map[string]struct{ first, want, title string }{
		"it cannot go on": {"abc", "", "StoreUnavailable"},
		"before a byte":   {"", "0123456", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				o := &object{open: func(_ context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
					answer := ranged.Answer{Object: source.Object{Size: 7}, From: at, Body: body("0123456"[at:min(end, 7)])}
					if tries++; tries == 1 {
						answer.Body = broken(in.first)
					}
					return answer, nil
				}}
				s := &sourcetest.Sink{}
				err := ranged.New("edge", part).Fetch(t.Context(), ref, o, s.Begin)
				if in.title != "" && problem.Of(err).Title != in.title || in.title == "" && (err != nil || string(s.Content) != in.want) {
					t.Errorf("%q, %v", s.Content, err)
				}
			})
		})
	}
}

// A buffer that takes nothing holds up the store: of one object no more than 1 MiB is anywhere
// else, however much of it the store has ready.
func TestLittleWaitsForTheBuffer(t *testing.T) {
	const size, outside = 64 << 20, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64
		o := &object{open: func(_ context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
			return ranged.Answer{Object: source.Object{Size: size, Version: "v"}, From: at, Body: io.NopCloser(io.LimitReader(counted{&read}, min(end, size)-at))}, nil
		}}
		full, fetched := make(busy), make(chan error, 1)
		go func() {
			fetched <- ranged.New("edge", 2<<20).Fetch(t.Context(), ref, o, func(source.Object) (io.WriterAt, error) { return full, nil })
		}()
		synctest.Wait()
		if n := read.Load(); n == 0 || n > outside {
			t.Errorf("%d bytes wait", n)
		}
		close(full)
		if err := <-fetched; err != nil || read.Load() != size {
			t.Errorf("%d of %d bytes were read, %v", read.Load(), size, err)
		}
	})
}

// counted is an endless body.
type counted struct{ read *atomic.Int64 }

func (c counted) Read(p []byte) (int, error) {
	c.read.Add(int64(len(p)))
	return len(p), nil
}

// busy takes bytes when it is closed, and not before.
type busy chan struct{}

func (b busy) WriteAt(p []byte, _ int64) (int, error) {
	<-b
	return len(p), nil
}

// A question has as long as a part may stand still, and its errors are those of a fetch.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lost := ranged.New("edge", part), errors.New("lost")
		for name, in := range map[string]struct {
			ask   func(context.Context) error
			title string
			after time.Duration
		}{
			"answered": {func(context.Context) error { return nil }, "", 0},
			"lost":     {func(context.Context) error { return lost }, "StoreUnavailable", 0},
			"busy":     {func(context.Context) error { return ranged.Again(source.Unavailable("edge", "it is busy")) }, "StoreUnavailable", 0},
			"missing":  {func(context.Context) error { return source.NotFound("edge", ref) }, "InputNotFound", 0},
			"silent":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "StoreTimeout", ranged.Stall},
		} {
			begun := time.Now()
			err := f.Ask(t.Context(), ref, in.ask)
			if in.title == "" && err != nil || in.title != "" && problem.Of(err).Title != in.title || time.Since(begun) != in.after {
				t.Errorf("%s: %v after %v", name, err, time.Since(begun))
			}
		}
	})
}
