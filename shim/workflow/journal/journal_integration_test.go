//go:build integration

package journal_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const workflow, key, asked = "shop/checkout", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "digest"

func newStore(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Address, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(t *testing.T, c *redis.Client, id string) (*journal.Journal, journal.Run) {
	t.Helper()
	j, run, err := journal.Open(t.Context(), of(c), workflow, key, asked, id, time.Unix(7, 9))
	if err != nil {
		t.Fatal(err)
	}
	return j, run
}

func of(c *redis.Client) journal.Store { return func() (*redis.Client, error) { return c, nil } }

// note writes what a call has answered.
func note(ctx context.Context, j *journal.Journal, c journal.Call) error {
	e, err := j.Entry(c)
	if err == nil {
		err = j.Note(ctx, e)
	}
	if err == nil {
		j.Wrote(e)
	}
	return err
}

// read are all answers of a record, and in how many pages they come.
func read(t *testing.T, j *journal.Journal) (all []journal.Call, pages int) {
	t.Helper()
	for {
		page, err := j.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all, pages
		}
		all = append(all, page...)
		pages++
	}
}

const malformed problem.Reason = "RunRecordMalformed"

func wantReason(t *testing.T, err error, want problem.Reason) {
	t.Helper()
	if problem.ReasonOf(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// same compares answers: go-cmp by itself looks at bytes one by one.
func same(a, b []journal.Call) bool {
	return slices.EqualFunc(a, b, func(a, b journal.Call) bool {
		var failed, other *problem.Problem
		_, _ = errors.As(a.Answer.Err, &failed), errors.As(b.Answer.Err, &other)
		return a.ID == b.ID && a.At.Equal(b.At) && a.Answer.Status == b.Answer.Status && bytes.Equal(a.Answer.Body, b.Answer.Body) &&
			cmp.Equal(a.Answer.Header, b.Answer.Header) && cmp.Equal(failed, other)
	})
}

// Whoever goes on with a run has all that it has come to, and its owner of before writes nothing more.
func TestARunGoesOn(t *testing.T) {
	c, ctx := newStore(t), t.Context()
	before, run := open(t, c, "first")
	if run.ID != "first" || !run.Began.Equal(time.Unix(7, 9)) || run.Again || run.End != nil {
		t.Errorf("it begins as %+v", run)
	}
	answered := []journal.Call{
		{ID: 1 << 63, At: time.Unix(8, 1), Answer: program.Answer{Status: 200, Header: http.Header{"A": {"b"}}, Body: []byte("\xff\x00")}},
		{ID: 5, At: time.Unix(8, 1), Answer: program.Answer{Err: problem.New(http.StatusBadGateway, problem.ReasonFunctionFailed, "", "it closed the connection")}},
	}
	for i := range 20 {
		answered = append(answered, journal.Call{ID: uint64(i), At: time.Unix(9, int64(i)), Answer: program.Answer{Status: 200, Body: make([]byte, 100<<10)}})
	}
	for _, c := range answered {
		if err := note(ctx, before, c); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := journal.Open(ctx, of(c), workflow, key, asked, "second", time.Now())
	wantReason(t, err, journal.ReasonInProgress)
	_, _, err = journal.Open(ctx, of(c), workflow, key, "another", "second", time.Now())
	wantReason(t, err, "IdempotencyKeyReused")
	if err := before.Release(ctx); err != nil {
		t.Fatal(err)
	}
	after, run := open(t, c, "second")
	got, pages := read(t, after)
	if !same(answered, got) || run.ID != "first" || !run.Began.Equal(time.Unix(7, 9)) || !run.Again {
		t.Errorf("it goes on as %+v, after %d answers, want %d", run, len(got), len(answered))
	}
	if pages < 2 || pages > 5 {
		t.Errorf("3 MB are read in %d pages", pages)
	}
	for what, do := range map[string]func() error{
		"note": func() error { return note(ctx, before, answered[0]) }, "read": func() error { _, err := before.Read(ctx); return err }, "renew": func() error { return before.Renew(ctx) },
		"release": func() error { return before.Release(ctx) }, "end": func() error { return before.End(ctx, journal.End{}) },
	} {
		if err := do(); !errors.Is(err, journal.ErrTakenOver) {
			t.Errorf("%s: %v", what, err)
		}
	}
	more := journal.Call{ID: 77, At: time.Unix(10, 0), Answer: program.Answer{Status: 200}}
	if err := errors.Join(note(ctx, after, more), after.Release(ctx)); err != nil {
		t.Fatal(err)
	}
	after, _ = open(t, c, "third")
	if got, _ := read(t, after); !same(got, append(answered, more)) {
		t.Error("what comes later is not behind what was there before")
	}
	end := &journal.End{Status: 201, Kind: "application/json", Body: []byte("{}\n")}
	if err := after.End(ctx, *end); err != nil {
		t.Fatal(err)
	}
	if _, run := open(t, c, "fourth"); !cmp.Equal(run.End, end) {
		t.Errorf("it has ended with %+v", run.End)
	}
	if bytes := c.MemoryUsage(ctx, c.Keys(ctx, "*").Val()[0]).Val(); bytes > 1024 {
		t.Errorf("it takes %d bytes when it has ended", bytes)
	}
	_, _, err = journal.Open(ctx, of(c), workflow, key, "another", "third", time.Now())
	wantReason(t, err, "IdempotencyKeyReused")
}

// An owner that is silent for too long loses its run. Records do not stay for ever.
func TestALease(t *testing.T) {
	c, ctx := newStore(t), t.Context()
	j, _ := open(t, c, "first")
	records := c.Keys(ctx, "headstart:run:"+workflow+":*").Val()
	if len(records) != 1 || strings.Contains(records[0], "8e03978e") {
		t.Fatalf("records %q", records)
	}
	lapse := func() { c.HIncrBy(ctx, records[0], "lease", -journal.Lease.Milliseconds()) }
	lapse()
	if err := j.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	_, _, err := journal.Open(ctx, of(c), workflow, key, asked, "second", time.Now())
	wantReason(t, err, journal.ReasonInProgress)
	lapse()
	open(t, c, "second")
	if left := c.PTTL(ctx, records[0]).Val(); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the record stays for %s", left)
	}
}

// A record has no more than its bound, also when somebody goes on with it.
func TestARecordIsBounded(t *testing.T) {
	c, ctx := newStore(t), t.Context()
	j, _ := open(t, c, "first")
	large := journal.Call{ID: 1, At: time.Unix(8, 1), Answer: program.Answer{Status: 200, Body: make([]byte, 1<<20)}}
	for n := 0; ; n++ {
		if _, err := j.Entry(large); err != nil {
			if wantReason(t, err, "RunRecordFull"); n != 47 { // of 1.4 MB each
				t.Errorf("after %d answers", n)
			}
			break
		}
		if err := note(ctx, j, large); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Release(ctx); err != nil {
		t.Fatal(err)
	}
	j, _ = open(t, c, "second")
	if all, pages := read(t, j); len(all) != 47 || pages != 47 {
		t.Errorf("%d answers in %d pages", len(all), pages)
	}
	_, err := j.Entry(large)
	wantReason(t, err, "RunRecordFull")
	j, _, err = journal.Open(ctx, of(c), workflow, "another", asked, "first", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Entry(journal.Call{ID: 1, At: time.Unix(8, 1), Answer: program.Answer{Status: 200, Body: make([]byte, 2<<20)}})
	wantReason(t, err, "RunRecordFull")
}

// The user needs the commands that the documentation lists (docs/reference/workflows.md), and no others.
func TestWhatTheUserNeeds(t *testing.T) {
	c, ctx := newStore(t), t.Context()
	page, err := os.ReadFile("../../../docs/reference/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile("(?s)the user needs the commands (.*?) on these keys").FindSubmatch(page)
	if listed == nil {
		t.Fatal("the page does not say which commands the user needs")
	}
	user := []any{"ACL", "SETUSER", "runs", "on", ">secret", "~headstart:run:*", "-@all"}
	for _, command := range regexp.MustCompile("`([A-Z]+)`").FindAllSubmatch(listed[1], -1) {
		user = append(user, "+"+strings.ToLower(string(command[1])))
	}
	if err := c.Do(ctx, user...).Err(); err != nil {
		t.Fatal(err)
	}
	limited := redis.NewClient(&redis.Options{Addr: c.Options().Addr, Username: "runs", Password: "secret", Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer limited.Close()
	for range 2 { // by EVALSHA, then
		j, _ := open(t, limited, "first")
		if _, err := j.Read(ctx); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(note(ctx, j, journal.Call{ID: 1, At: time.Now(), Answer: program.Answer{Status: 200}}), j.Renew(ctx), j.Release(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	j, _ := open(t, limited, "second")
	if err := j.End(ctx, journal.End{Status: 200}); err != nil {
		t.Error(err)
	}
}

// A store that is away, or a record that somebody else has written, is said.
func TestAStoreThatIsAway(t *testing.T) {
	c, ctx := newStore(t), t.Context()
	first, _ := open(t, c, "first")
	if err := note(ctx, first, journal.Call{ID: 1, At: time.Now(), Answer: program.Answer{Status: 200}}); err != nil {
		t.Fatal(err)
	}
	record := c.Keys(ctx, "*").Val()[0]
	for _, wrong := range []struct {
		field, value string
		want         problem.Reason
	}{
		{"began", "yesterday", malformed}, {"end", `{"status":99}`, malformed}, {"end", strings.Repeat("x", 3<<20), malformed}, {"call:1", "x", malformed},
		{"call:1", `{"status":1000}`, malformed}, {"call:1", strings.Repeat("x", 3<<20), problem.ReasonStateUnavailable},
	} {
		field, value := wrong.field, wrong.value
		was, missing := c.HGet(ctx, record, field).Result()
		c.HSet(ctx, record, "lease", 0, field, value)
		j, _, err := journal.Open(ctx, of(c), workflow, key, asked, "second", time.Now())
		if err == nil {
			_, err = j.Read(ctx)
		}
		wantReason(t, err, wrong.want)
		if c.HDel(ctx, record, field); missing == nil {
			c.HSet(ctx, record, field, was)
		}
	}
	c.HSet(ctx, record, "lease", 0)
	j, _ := open(t, c, "third")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	wantReason(t, j.Renew(ended), problem.ReasonStateUnavailable)
	until := j.Until()
	_ = c.Close()
	wantReason(t, j.Renew(ctx), problem.ReasonStateUnavailable)
	if !j.Until().Equal(until) || time.Until(until) > journal.Lease {
		t.Errorf("the owner has its run until %s, and before until %s", j.Until(), until)
	}
	refused := problem.New(http.StatusServiceUnavailable, problem.ReasonStateUnavailable, "", "it is not granted any more")
	_, _, err := journal.Open(ctx, func() (*redis.Client, error) { return nil, refused }, workflow, key, asked, "fourth", time.Now())
	if !errors.Is(err, refused) {
		t.Error(err)
	}
}
