package redis

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// testContent has no two pieces alike.
func testContent(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(time.Duration(b.Len()).String() + " ")
	}
	return b.String()[:size]
}

// slowly sends size bytes of an answer at a time, and nothing for a while in between.
func slowly(size int, pause time.Duration) func(io.Writer, string) error {
	return func(conn io.Writer, answer string) error {
		for len(answer) > 0 {
			n := min(size, len(answer))
			if _, err := io.WriteString(conn, answer[:n]); err != nil {
				return err
			}
			if answer = answer[n:]; answer != "" {
				time.Sleep(pause)
			}
		}
		return nil
	}
}

// A link over which a part takes much longer than a store may say nothing is a slow one, and
// no dead one.
func TestFetchBySlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces, pause = 16, ranged.Stall * 3 / 4
		f := newFake()
		f.write = slowly(Part/pieces, pause)
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		content := testContent(3 * Part)
		f.set("jobs:k", content)
		begun, sink := time.Now(), &sourcetest.Sink{}
		if err := s.Fetch(t.Context(), testRef("k"), "", sink.Begin); err != nil || string(sink.Content) != content {
			t.Errorf("got %d bytes, %v", len(sink.Content), err)
		}
		if took := time.Since(begun); took < ranged.Stall || f.count("GETRANGE") != 1+3*Part/piece {
			t.Errorf("it took %v and %d commands", took, f.count("GETRANGE"))
		}
	})
}

// Bytes are there for readers as they come, long before their part, or their piece, is
// complete.
func TestBytesAreHandedOutAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		seen := make(chan struct{}) // closed when some of the half that was sent was written
		f.write = func(conn io.Writer, answer string) error {
			if len(answer) < piece {
				_, err := io.WriteString(conn, answer)
				return err
			}
			if _, err := io.WriteString(conn, answer[:piece/2]); err != nil {
				return err
			}
			<-seen
			_, err := io.WriteString(conn, answer[piece/2:])
			return err
		}
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		content := testContent(Part)
		f.set("jobs:k", content)
		var writes atomic.Int32
		sink := &sourcetest.Sink{OnWrite: func() error {
			if writes.Add(1) == 2 { // The first is what came with the answer to the first question.
				close(seen)
			}
			return nil
		}}
		if err := s.Fetch(t.Context(), testRef("k"), "", sink.Begin); err != nil || string(sink.Content) != content {
			t.Errorf("got %d bytes, %v", len(sink.Content), err)
		}
	})
}

// The server has always been asked for what comes next, and not for more than that.
func TestStreamAsksAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		content := testContent(4*piece + 7)
		f.set("jobs:k", content)
		part, err := s.object(testRef("k"), "").stream(t.Context(), 1, int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
		for read, p := int64(0), make([]byte, piece/4); ; {
			synctest.Wait()
			if asked, want := f.count("GETRANGE"), min(2+int(read/piece), 5); asked != want {
				t.Errorf("after %d bytes the server has been asked for %d pieces, want %d", read, asked, want)
			}
			n, err := part.Read(p)
			if read += int64(n); string(p[:n]) != content[1+read-int64(n):1+read] {
				t.Fatalf("after %d bytes the content is another", read)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := part.Read(make([]byte, 1)); err != io.EOF || part.at != int64(len(content)) {
			t.Errorf("it ends at %d with %v", part.at, err)
		}
	})
}

// Who gives up a stream, in whatever way, leaves no goroutine and no connection on which
// something is still to come.
func TestStreamThatIsGivenUp(t *testing.T) {
	for name, give := range map[string]func(cancel func(), part *stream){
		"closed":    func(_ func(), part *stream) { _ = part.Close(); _ = part.Close() },
		"cancelled": func(cancel func(), _ *stream) { cancel() },
		"cancelled and read": func(cancel func(), part *stream) {
			cancel()
			synctest.Wait()
			if _, err := io.Copy(io.Discard, part); err == nil {
				t.Error("it is read to its end")
			}
		},
	} {
		for _, read := range []int64{0, 1, piece - 1, piece, piece + 1} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					s, end := open(t, f, config("redis.test:6379"))
					defer end()
					content := testContent(4 * piece)
					f.set("jobs:k", content)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					part, err := s.object(testRef("k"), "").stream(ctx, 0, int64(len(content)))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.CopyN(io.Discard, part, read); err != nil {
						t.Fatal(err)
					}
					give(cancel, part)
					_ = part.Close()
					synctest.Wait()
					if n, kept := f.connected(), len(s.lines.idle); n != 0 || kept != 0 {
						t.Errorf("after %d bytes %d connections are open, %d kept", read, n, kept)
					}
					sink := &sourcetest.Sink{}
					if err := s.Fetch(t.Context(), testRef("k"), "", sink.Begin); err != nil || string(sink.Content) != content {
						t.Errorf("the next one gets %d bytes, %v", len(sink.Content), err)
					}
				})
			})
		}
	}
}

// A context that ends after a stream has does not touch the connection, which others use.
func TestStreamThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, end := open(t, f, config("redis.test:6379"))
		defer end()
		f.set("jobs:k", testContent(2*piece))
		ctx, cancel := context.WithCancel(t.Context())
		part, err := s.object(testRef("k"), "").stream(ctx, 0, 2*piece)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, part); n != 2*piece || err != nil {
			t.Errorf("got %d bytes, %v", n, err)
		}
		cancel()
		_ = part.Close()
		synctest.Wait()
		if n, kept := f.connected(), len(s.lines.idle); n != 1 || kept != 1 {
			t.Errorf("%d connections are open, %d kept", n, kept)
		}
	})
}

// A server that closes connections that nobody uses, as Redis' timeout does, is asked by a
// new one, whether it says why or not.
func TestKeptLinesThatTheServerClosed(t *testing.T) {
	for name, says := range map[string]string{"silently": "", "saying why": "-ERR idle for too long\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s, end := open(t, f, config("redis.test:6379"))
				defer end()
				content := testContent(3 * Part)
				f.set("jobs:k", content)
				for range 3 {
					sink := &sourcetest.Sink{}
					if err := s.Fetch(t.Context(), testRef("k"), "", sink.Begin); err != nil || string(sink.Content) != content {
						t.Errorf("got %d bytes, %v", len(sink.Content), err)
					}
					f.hangUp(says)
					synctest.Wait()
				}
			})
		})
	}
}

// The password and the database go with the first command, and are told once.
func TestGreeting(t *testing.T) {
	for name, in := range map[string]struct {
		secret   string
		database int
		answer   string
		said     string
		title    string
	}{
		"nothing":     {said: "UNWATCH"},
		"password":    {secret: "password=" + testSecret, said: "AUTH UNWATCH"},
		"user":        {secret: "username=reader\npassword=" + testSecret, said: "AUTH UNWATCH"},
		"database":    {database: 3, said: "SELECT UNWATCH"},
		"both":        {secret: "password=" + testSecret, database: 3, said: "AUTH SELECT UNWATCH"},
		"wrong":       {secret: "password=" + testSecret, answer: "-WRONGPASS invalid username-password pair", title: "StoreForbidden"},
		"not enabled": {secret: "password=" + testSecret, answer: "-ERR AUTH <password> called without any password configured", title: "StoreForbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.before = func(command []string) string {
				if command[0] == "AUTH" {
					return in.answer
				}
				return ""
			}
			cfg := config("redis.test:6379")
			cfg.Database = in.database
			if in.secret != "" {
				cfg.Credentials = credentials(t, in.secret)
			}
			s, end := open(t, f, cfg)
			defer end()
			f.set("jobs:k", "x")
			for range 2 {
				err := s.Fetch(t.Context(), testRef("k"), "", (&sourcetest.Sink{}).Begin)
				if in.title == "" && err != nil || in.title != "" && problem.Of(err).Title != in.title {
					t.Errorf("got %v", err)
				}
				if in.title != "" && !errors.As(err, new(*problem.Problem)) {
					t.Errorf("%v is no problem", err)
				}
			}
			if said, rest := f.said(), " WATCH EXISTS STRLEN GETRANGE"; in.title == "" && said != in.said+rest+" UNWATCH"+rest {
				t.Errorf("the server was told %s", said)
			}
		})
	}
}
