//go:build integration

package lessons_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/workflow/lessons"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Address, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func row(body string) lessons.Row {
	return lessons.Row{Function: "shop/prices", Revision: "1", Key: bytes.Repeat([]byte{7}, 32), At: time.Unix(8, 0).UTC(), Status: 200,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

// heard are all lessons that there are to hear.
func heard(t *testing.T, s *lessons.Stream, c *redis.Client) (all []lessons.Lesson, pages int) {
	t.Helper()
	for more := true; more; pages++ {
		var page []lessons.Lesson
		var err error
		if page, more, err = s.News(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
	}
	return all, pages
}

// A node hears once what others have told of the same document, and nothing of its own.
func TestLessons(t *testing.T) {
	c := newStore(t)
	a, b, other := lessons.New("shop/checkout", "1"), lessons.New("shop/checkout", "1"), lessons.New("shop/checkout", "2")
	told := []lessons.Lesson{{Rows: []lessons.Row{row("1")}}, {Choices: []program.Choice{{Task: "/do/if", Route: 1 << 63, Case: 2}}}}
	for _, l := range told {
		if err := a.Tell(t.Context(), c, l); err != nil {
			t.Fatal(err)
		}
	}
	for s, want := range map[*lessons.Stream][]lessons.Lesson{a: nil, b: told, other: nil} {
		if got, _ := heard(t, s, c); !cmp.Equal(got, want) {
			t.Errorf("it hears %v, want %v", got, want)
		}
		if got, _ := heard(t, s, c); got != nil {
			t.Errorf("once more it hears %v", got)
		}
	}
	if err := b.Tell(t.Context(), c, told[0]); err != nil {
		t.Fatal(err)
	}
	if got, _ := heard(t, a, c); !cmp.Equal(got, told[:1]) {
		t.Errorf("it hears %v", got)
	}
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if left := c.PTTL(t.Context(), key).Val(); !strings.HasPrefix(key, "headstart:learned:shop/checkout:") || left <= 0 || left > time.Hour {
			t.Errorf("%s stays for %s", key, left)
		}
	}
}

// What is large is read in pages, what is too large is not told or not read, and no more is kept than the newest.
func TestLessonsAreBounded(t *testing.T) {
	c := newStore(t)
	a, b := lessons.New("shop/checkout", "1"), lessons.New("shop/checkout", "1")
	large := lessons.Lesson{Rows: []lessons.Row{row(strings.Repeat("x", lessons.Most/2))}}
	for range 300 {
		if err := a.Tell(t.Context(), c, large); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Tell(t.Context(), c, lessons.Lesson{Rows: []lessons.Row{row(strings.Repeat("x", lessons.Most))}}); err != nil {
		t.Fatal(err)
	}
	got, pages := heard(t, b, c)
	if len(got) < 128 || len(got) >= 300 || pages < len(got)/7 {
		t.Errorf("%d lessons in %d pages", len(got), pages)
	}
}

// Others may write the store, too: what is no lesson is passed over.
func TestWhatIsNoLesson(t *testing.T) {
	c := newStore(t)
	a, b := lessons.New("shop/checkout", "1"), lessons.New("shop/checkout", "1")
	long := row("1")
	long.Function = strings.Repeat("x", 2000)
	if err := a.Tell(t.Context(), c, lessons.Lesson{Rows: []lessons.Row{{Status: 200}, {Key: row("").Key, Status: 1000}, long, row("1")},
		Choices: []program.Choice{{Task: "/do/if", Case: -1}, {Task: long.Function}}}); err != nil {
		t.Fatal(err)
	}
	stream := c.Keys(t.Context(), "*").Val()[0]
	for _, fields := range [][]string{{"by", "x", "lesson", "{"}, {"by", "x"}, {"lesson", "x", "by", "{}"}, {"by", "x", "lesson", strings.Repeat("x", lessons.Most+1)}} {
		if err := c.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: fields}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := heard(t, b, c); !cmp.Equal(got, []lessons.Lesson{{Rows: []lessons.Row{row("1")}}}) {
		t.Errorf("it hears %v", got)
	}
	c.Del(t.Context(), stream)
	c.Set(t.Context(), stream, "no stream", 0)
	if _, _, err := b.News(t.Context(), c); err == nil {
		t.Error("a string is read as a stream")
	}
	if err := b.Tell(t.Context(), c, lessons.Lesson{}); err == nil {
		t.Error("a string is written as a stream")
	}
	c.Del(t.Context(), stream) // which is news for who has read another one
	if err := a.Tell(t.Context(), c, lessons.Lesson{Rows: []lessons.Row{row("2")}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := heard(t, b, c); !cmp.Equal(got, []lessons.Lesson{{Rows: []lessons.Row{row("2")}}}) {
		t.Errorf("of the next stream it hears %v", got)
	}
}
