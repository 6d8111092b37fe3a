package session

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var cache = Redis{Name: "cache", User: "app", Password: "hunter2"}

// fakeRedis answers each command with its words and the connection's number, and notes what each connection is told.
type fakeRedis struct {
	Dial
	mu   sync.Mutex
	told map[int][]string
}

func startFakeRedis(t *testing.T) *fakeRedis {
	f := &fakeRedis{told: map[int][]string{}}
	f.Dial = listen(t, func(number int, conn net.Conn) {
		var in []byte
		for b := make([]byte, inLimit); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			in = append(in, b[:n]...)
			for {
				words, size, err := parseCommand(in)
				if size == 0 || err != nil {
					break
				}
				in = in[size:]
				said := strings.Join(words, " ")
				f.mu.Lock()
				f.told[number] = append(f.told[number], said)
				f.mu.Unlock()
				fmt.Fprintf(conn, "+%d %s\r\n", number, said)
			}
		}
	})
	return f
}

// command is one as a client writes it.
func command(line string) []byte { return AppendCommand(nil, strings.Fields(line)...) }

func startOf(lines ...string) (s Start) {
	for _, line := range lines {
		s += Start(command(line))
	}
	return s
}

const login = "AUTH app hunter2"

func TestRedisAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		last  Start
		says  []string
		hears []string // without the last one's, which the session answers, if that is no start-up
		told  map[int][]string
		start Start
	}{
		"no start-up": {
			says: []string{"GET k"}, told: map[int][]string{1: {login, "GET k"}},
		},
		"nothing is known": {
			says:  []string{"hello 3 AUTH app x", "client setinfo LIB-NAME a", "SELECT 2", "GET k"},
			hears: []string{"1 HELLO 3", "1 CLIENT SETINFO LIB-NAME a", "1 SELECT 2"},
			told:  map[int][]string{1: {login, "HELLO 3", "CLIENT SETINFO LIB-NAME a", "SELECT 2", "GET k"}},
			start: startOf("HELLO 3", "CLIENT SETINFO LIB-NAME a", "SELECT 2"),
		},
		"all is known": {
			last:  startOf("HELLO 3 SETNAME n", "SELECT 2"),
			says:  []string{"HELLO 3 SETNAME n AUTH default x", "SELECT 2", "GET k"},
			hears: []string{"1 HELLO 3 SETNAME n", "1 SELECT 2"},
			told:  map[int][]string{1: {login, "HELLO 3 SETNAME n", "SELECT 2", "GET k"}},
			start: startOf("HELLO 3 SETNAME n", "SELECT 2"),
		},
		"more than is known": {
			last: startOf("HELLO 3"), says: []string{"HELLO 3", "SELECT 2", "GET k"},
			hears: []string{"1 HELLO 3", "1 SELECT 2"},
			told:  map[int][]string{1: {login, "HELLO 3", "SELECT 2", "GET k"}},
			start: startOf("HELLO 3", "SELECT 2"),
		},
		"less than is known": {
			last: startOf("HELLO 3", "SELECT 2"), says: []string{"HELLO 3", "GET k"}, hears: []string{"1 HELLO 3"},
			told:  map[int][]string{1: {login, "HELLO 3", "SELECT 2"}, 2: {login, "HELLO 3", "GET k"}},
			start: startOf("HELLO 3"),
		},
		"another version": {
			last: startOf("HELLO 3"), says: []string{"HELLO 2", "GET k"}, hears: []string{"1 HELLO 2"},
			told: map[int][]string{1: {login, "HELLO 2", "GET k"}}, start: startOf("HELLO 2"),
		},
		"another database": {
			last: startOf("HELLO 3", "SELECT 2"), says: []string{"HELLO 3", "SELECT 5", "GET k"},
			hears: []string{"1 HELLO 3", "2 SELECT 5"},
			told:  map[int][]string{1: {login, "HELLO 3", "SELECT 2"}, 2: {login, "HELLO 3", "SELECT 5", "GET k"}},
			start: startOf("HELLO 3", "SELECT 5"),
		},
		"its own password": {
			says: []string{"AUTH x", "AUTH app y", "AUTH default z", "GET k"}, hears: []string{"OK", "OK", "OK"},
			told: map[int][]string{1: {login, "GET k"}},
		},
		"another user": {
			last: startOf("SELECT 2"), says: []string{"AUTH eve x"}, told: map[int][]string{1: {"AUTH eve x"}},
			start: Bare,
		},
		"another user by HELLO": {
			says: []string{"HELLO 3 SETNAME n AUTH eve x"}, told: map[int][]string{1: {"HELLO 3 SETNAME n AUTH eve x"}},
			start: Bare,
		},
		"another user later": {
			last: startOf("SELECT 2"), says: []string{"SELECT 2", "AUTH eve x"},
			hears: []string{"1 SELECT 2", "2 AUTH eve x"},
			told:  map[int][]string{1: {login, "SELECT 2"}, 2: {"AUTH eve x", "SELECT 2"}},
			start: Bare,
		},
		"wrong options": {
			says: []string{"HELLO 3 AUTH app x WHAT", "GET k"}, hears: []string{"1 HELLO 3 WHAT"},
			told: map[int][]string{1: {login, "HELLO 3 WHAT", "GET k"}}, start: startOf("HELLO 3 WHAT"),
		},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(name, together), func(t *testing.T) {
				server := startFakeRedis(t)
				from := &sessions{t: t, protocol: cache, dial: server.Dial, last: c.last}
				client := accept(t.Context(), t, cache, from)
				in := bufio.NewReader(client)
				if together {
					var all []byte
					for _, line := range c.says {
						all = append(all, command(line)...)
					}
					go client.Write(all)
				}
				for i, line := range c.says {
					if !together {
						go client.Write(command(line))
					}
					if i == len(c.hears) {
						break
					}
					if said, err := in.ReadString('\n'); said != "+"+c.hears[i]+"\r\n" {
						t.Errorf("%s: %q, %v", line, said, err)
					}
				}
				s, err := client.result()
				if err != nil || s.Start != c.start {
					t.Fatalf("%+v, %v", s, err)
				}
				if len(c.hears) < len(c.says) {
					if said, err := bufio.NewReader(s.Conn).ReadString('\n'); err != nil || !strings.HasSuffix(said, "\r\n") {
						t.Errorf("%q, %v", said, err)
					}
				}
				server.mu.Lock()
				defer server.mu.Unlock()
				if !reflect.DeepEqual(server.told, c.told) {
					t.Errorf("the server was told %v", server.told)
				}
			})
		}
	}
}

// Who passes commands on by itself gets what is beyond the start-up, of which the server hears nothing.
func TestRedisBegins(t *testing.T) {
	for name, c := range map[string]struct {
		says        []string
		unread      string
		version, db int
		refused     bool
	}{
		"no start-up":     {says: []string{"GET k"}, unread: "GET k", version: 2},
		"a start-up":      {says: []string{"HELLO 3", "SELECT 4", "GET k"}, unread: "GET k", version: 3, db: 4},
		"own user":        {says: []string{"AUTH app x", "SET k v"}, unread: "SET k v", version: 2},
		"another user":    {says: []string{"AUTH eve x"}, refused: true},
		"another at last": {says: []string{"SELECT 2", "HELLO 3 AUTH eve x"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := startFakeRedis(t)
			from := &sessions{t: t, protocol: cache, dial: server.Dial}
			ours, theirs := net.Pipe()
			defer theirs.Close()
			go func() {
				for _, line := range c.says {
					_, _ = theirs.Write(command(line)) // it may be refused before
				}
			}()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			b, err := cache.Begin(t.Context(), ours, from)
			_ = ours.Close()
			if c.refused {
				if err == nil || !strings.Contains(err.Error(), "runs ahead") {
					t.Errorf("%+v, %v", b, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(b.Unread) != string(command(c.unread)) || b.Version != c.version || b.DB != c.db {
				t.Errorf("%q, %+v", b.Unread, b)
			}
			_ = b.Conn.Close()
			server.mu.Lock()
			defer server.mu.Unlock()
			for _, told := range server.told {
				if slices.Contains(told, c.unread) {
					t.Errorf("the server was told %q", told)
				}
			}
		})
	}
}

// A client that speaks TLS gets the server itself.
func TestRedisEncrypted(t *testing.T) {
	dial := listen(t, func(_ int, conn net.Conn) { io.Copy(conn, conn) })
	from := &sessions{t: t, dial: dial, last: startOf("HELLO 3")}
	client := accept(t.Context(), t, cache, from)
	hello := []byte("\x16\x03\x01")
	client.send(hello)
	s, err := client.result()
	if err != nil || s.Start != Bare || !slices.Equal(from.taken, []Start{Bare}) {
		t.Fatalf("%+v, %v, taken %q", s, err, from.taken)
	}
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(s.Conn, got); !slices.Equal(got, hello) {
		t.Errorf("the server got %q, %v", got, err)
	}
}

// A driver that says nothing after its start-up gets its session.
func TestRedisPauses(t *testing.T) {
	server := startFakeRedis(t)
	client := accept(t.Context(), t, cache, &sessions{t: t, protocol: cache, dial: server.Dial})
	client.send(command("HELLO 3"))
	bufio.NewReader(client).ReadString('\n')
	s, err := client.result()
	if err != nil || s.Start != startOf("HELLO 3") {
		t.Fatalf("%+v, %v", s, err)
	}
	go client.Write([]byte("x")) // no deadline is left
	if _, err := client.program.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestRedisTakeFails(t *testing.T) {
	for want, err := range map[string]error{
		`-ERR destination "cache": none`:                                     errNone,
		`-WRONGPASS destination "cache": the server refuses: no (WRONGPASS)`: &Refusal{Code: "WRONGPASS", Message: "no"},
	} {
		client := accept(t.Context(), t, cache, &sessions{t: t, err: err})
		for _, line := range []string{"HELLO 3", "GET k"} { // the second one's is what drivers show
			client.send(command(line))
			said := make([]byte, len(want)+2)
			if _, err := io.ReadFull(client, said); string(said) != want+"\r\n" || err != nil {
				t.Errorf("%q, %v", said, err)
			}
		}
		client.Close()
		if s, err := client.result(); s != nil || err == nil {
			t.Errorf("%v, %v", s, err)
		}
	}
}

func TestRedisOpenFails(t *testing.T) {
	for _, said := range []string{
		"-WRONGPASS no\r\n", "-ERR max number of clients reached\r\n", "what\r\n", "+OK\r\n+more\r\n", "",
	} {
		dial := listen(t, func(_ int, conn net.Conn) {
			conn.Read(make([]byte, inLimit))
			io.WriteString(conn, said)
		})
		s, err := cache.Open(t.Context(), dial, "")
		if s != nil || err == nil || strings.Contains(err.Error(), cache.Password) {
			t.Errorf("%q: %v, %v", said, s, err)
		}
	}
}

func TestParseCommand(t *testing.T) {
	for in, want := range map[string]struct {
		words []string
		size  int
		other bool
	}{
		"":                               {},
		"*1\r\n$4\r\nPI":                 {},
		"*1\r\n$4\r\nPING\r":             {},
		"*1\r\n$4\r\nPING\r\nmore":       {words: []string{"PING"}, size: 14},
		"*2\r\n$1\r\na\r\n$0\r\n\r\n":    {words: []string{"a", ""}, size: 17},
		"*0\r\n":                         {other: true},
		"PING\r\n":                       {other: true},
		"\r\n":                           {other: true},
		"*17\r\n":                        {other: true},
		"*-1\r\n":                        {other: true},
		"*1\r\n$99999\r\n":               {other: true},
		"*1\r\n$1\r\nabc\r\n":            {other: true},
		"*1\r\n:1\r\n":                   {other: true},
		"*1\r\n$9223372036854775808\r\n": {other: true},
	} {
		words, size, err := parseCommand([]byte(in))
		if !slices.Equal(words, want.words) || size != want.size || (err != nil) != want.other {
			t.Errorf("%q: %q, %d, %v", in, words, size, err)
		}
	}
}

func TestReadReply(t *testing.T) {
	deep := strings.Repeat("*1\r\n", depthLimit+2) + ":1\r\n"
	for in, size := range map[string]int{
		"+OK\r\n+x": 5, "-ERR no\r\n": 9, ":1\r\n": 4, "_\r\n": 3, "#t\r\n": 4, ",1.5\r\n": 6, "(12\r\n": 5,
		"$-1\r\n": 5, "*-1\r\n": 5, "$3\r\na\r\n\r\n": 9, "*0\r\n": 4,
		"%1\r\n+a\r\n*2\r\n:1\r\n$1\r\na\r\n": 23, "~1\r\n:1\r\n": 8,
		// What is not taken.
		"": 0, "\r\n": 0, "+OK\n": 0, ">1\r\n:1\r\n": 0, "|1\r\n": 0, "$3\r\nabcd\r\n": 0, "$x\r\n": 0,
		"$-2\r\n": 0, "$65536\r\n": 0,
		"*2\r\n:1\r\n": 0, "$3\r\nab": 0, deep: 0, "+" + strings.Repeat("x", lineLimit) + "\r\n": 0,
		"%60000\r\n" + strings.Repeat(":1\r\n", 120_000): 0,
	} {
		raw, err := readReply(bufio.NewReaderSize(strings.NewReader(in), lineLimit), nil, 0)
		if (err == nil) != (size > 0) || size > 0 && string(raw) != in[:size] {
			t.Errorf("%.40q: %q, %v", in, raw, err)
		}
	}
}

// What belongs to a start-up is the same when it is read again, which sessions rely on that are opened by a Start.
func FuzzParseCommand(f *testing.F) {
	f.Add(command("HELLO 3 AUTH app x SETNAME n"))
	f.Add(command("CLIENT SETINFO LIB-NAME x"))
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		words, size, err := parseCommand(in)
		if size > len(in) || err != nil && size != 0 {
			t.Fatalf("%d of %d bytes, %v", size, len(in), err)
		}
		said, is := cache.role(words)
		if is != startUp {
			return
		}
		again, size, err := parseCommand(said)
		if err != nil || size != len(said) {
			t.Fatalf("%q is not read: %v", said, err)
		}
		if same, is := cache.role(again); is != startUp || !bytes.Equal(same, said) {
			t.Errorf("%q became %q", said, same)
		}
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte("%1\r\n+a\r\n*2\r\n:1\r\n$1\r\na\r\n"))
	f.Add([]byte("-ERR no\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, err := readReply(bufio.NewReaderSize(bytes.NewReader(in), lineLimit), nil, 0)
		if err == nil && (!bytes.HasPrefix(in, raw) || len(raw) > repliesLimit+lineLimit) {
			t.Errorf("%q became %q", in, raw)
		}
	})
}

// A driver is answered or left, whatever it sends.
func FuzzRedisAccept(f *testing.F) {
	f.Add(append(command("HELLO 3"), command("GET k")...))
	f.Add(append(command("AUTH x"), command("AUTH eve x")...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		go func() {
			ours.SetWriteDeadline(time.Now().Add(limit))
			ours.Write(sent)
			ours.Close()
		}()
		go io.Copy(io.Discard, ours)
		s, err := cache.Accept(t.Context(), theirs, &recorder{})
		if s != nil || strings.Contains(fmt.Sprint(err), cache.Password) {
			t.Errorf("%v, %v", s, err)
		}
		theirs.Close()
	})
}
