package memo_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/workflow/memo"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

var (
	prices = memo.Of{Namespace: "shop", Function: "shop/prices", Revision: "1"}
	began  = time.Unix(1_700_000_000, 0)
)

func request(body string, headers ...string) *program.Request {
	r := &program.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "prices.shop", Path: "/"}, Header: http.Header{},
		Body: []byte(body)}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func answer(body string) program.Answer {
	return program.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}, "Date": {body}}, Body: []byte(body)}
}

// All that a function gets makes a request another one, but for its trace.
func TestKeys(t *testing.T) {
	seen := map[memo.Key]string{}
	other := func(name string, r *program.Request) {
		if same, is := seen[memo.KeyOf(r)]; is {
			t.Errorf("%s is taken for %s", name, same)
		}
		seen[memo.KeyOf(r)] = name
	}
	other("a body", request("x"))
	other("another", request("y"))
	other("none", request(""))
	other("a header", request("x", "A", "1"))
	other("its value", request("x", "A", "2"))
	other("twice", request("x", "A", "1", "A", "2"))
	other("two headers", request("x", "A", "1", "B", "2"))
	path := request("x")
	path.URL.RawQuery = "a=1"
	other("a query", path)
	put := request("x")
	put.Method = http.MethodPut
	other("a method", put)
	if memo.KeyOf(request("x")) != memo.KeyOf(request("x", "traceparent", "00-1", "Baggage", "a=b")) {
		t.Error("the trace counts")
	}
}

// What was answered last is guessed, of this function for this namespace, for an hour.
func TestGuesses(t *testing.T) {
	tables, key := memo.New(), memo.KeyOf(request("x"))
	guessed := func(of memo.Of, now time.Time) string {
		a, _, known := tables.Guess(of, key, now)
		if !known {
			return "nothing"
		}
		return string(a.Body)
	}
	if got := guessed(prices, began); got != "nothing" {
		t.Error(got)
	}
	tables.Feed(prices, key, answer("1"), began)
	tables.Feed(prices, memo.KeyOf(request("y")), program.Answer{Err: http.ErrServerClosed}, began)
	tables.Feed(prices, memo.KeyOf(request("z")), answer(strings.Repeat("x", 64<<10)), began)
	other, revised := prices, prices
	other.Namespace, revised.Revision = "bank", "2"
	for _, c := range []struct {
		of   memo.Of
		at   time.Duration
		want string
	}{{prices, 0, "1"}, {prices, time.Hour, "1"}, {other, 0, "nothing"}, {revised, 0, "nothing"}, {prices, time.Hour + 1, "nothing"}} {
		if got := guessed(c.of, began.Add(c.at)); got != c.want {
			t.Errorf("%v after %s: %s, want %s", c.of, c.at, got, c.want)
		}
	}
	for _, body := range []string{"y", "z"} {
		if _, _, known := tables.Guess(prices, memo.KeyOf(request(body)), began); known {
			t.Errorf("%s is kept", body)
		}
	}
}

// From a function whose answers change is guessed no more, until they do no longer.
func TestTrust(t *testing.T) {
	tables, key := memo.New(), memo.KeyOf(request("x"))
	known := func() bool { _, _, is := tables.Guess(prices, key, began); return is }
	for n := range 20 {
		tables.Feed(prices, key, answer(fmt.Sprint(n)), began)
	}
	if known() {
		t.Error("a function that has answered something else 19 times is guessed from")
	}
	again := 0
	for ; !known() && again < 100; again++ {
		tables.Feed(prices, key, answer("the same"), began)
	}
	if again < 2 || again == 100 {
		t.Errorf("it is guessed from again after %d answers that were the same", again)
	}
	for n := range 100 { // every other one
		tables.Feed(prices, key, answer(fmt.Sprint(n/2)), began)
	}
	if !known() {
		t.Error("a function that is right half of the time is not guessed from")
	}
}

// A function has 50 rows, those that were used last, and a namespace its share of the node.
func TestRoom(t *testing.T) {
	tables := memo.New()
	key := func(n int) memo.Key { return memo.KeyOf(request(fmt.Sprint(n))) }
	for n := range 60 {
		tables.Feed(prices, key(n), answer("1"), began)
		tables.Guess(prices, key(0), began)
	}
	for n := range 60 {
		if _, _, known := tables.Guess(prices, key(n), began); known != (n == 0 || n > 10) {
			t.Errorf("row %d: %v", n, known)
		}
	}
	bank := memo.Of{Namespace: "bank", Function: "bank/rates"}
	large := program.Answer{Status: 200, Body: make([]byte, 60<<10)}
	for n := range 1000 {
		of := prices
		of.Function += fmt.Sprint(n / 40)
		tables.Feed(of, key(n), large, began)
	}
	tables.Feed(bank, key(0), large, began)
	if _, _, known := tables.Guess(bank, key(0), began); !known {
		t.Error("a namespace leaves no room for others")
	}
	last := prices
	last.Function += fmt.Sprint(999 / 40)
	if _, _, known := tables.Guess(last, key(999), began); !known {
		t.Error("the latest row is not kept")
	}
}

// What others have learned is a guess, too, if nothing newer is known. It proves nothing.
func TestHearing(t *testing.T) {
	tables, key := memo.New(), memo.KeyOf(request("{}"))
	want := func(what string, at time.Time, body string) {
		t.Helper()
		if got, _, known := tables.Guess(prices, key, at); string(got.Body) != body || known != (body != "") {
			t.Errorf("%s: %q, %t, want %q", what, got.Body, known, body)
		}
	}
	tables.Hear(prices, key, answer("1"), began.Add(-2*time.Hour), began)
	want("it is old", began, "")
	tables.Hear(prices, key, answer("2"), began, began)
	want("it is new", began, "2")
	tables.Feed(prices, key, answer("3"), began.Add(time.Minute))
	tables.Hear(prices, key, answer("4"), began.Add(30*time.Second), began.Add(2*time.Minute))
	want("it is older than what is known", began.Add(2*time.Minute), "3")
	tables.Hear(prices, key, answer("3"), began, began.Add(2*time.Minute))
	want("what is known is not taken for older", began.Add(time.Hour+30*time.Second), "3")
	for n := range 20 {
		tables.Hear(prices, key, answer(fmt.Sprint("other ", n)), began.Add(time.Duration(3+n)*time.Minute), began.Add(time.Hour))
	}
	want("others say something else each time", began.Add(time.Hour), "other 19")
}

// What stays as it is is news again before others have forgotten it.
func TestNews(t *testing.T) {
	tables, key, told := memo.New(), memo.KeyOf(request("{}")), 0
	for minute := range 120 {
		if tables.Feed(prices, key, answer("1"), began.Add(time.Duration(minute)*time.Minute)) {
			told++
		}
	}
	if told < 3 || told > 5 {
		t.Errorf("in two hours it is told %d times", told)
	}
}
