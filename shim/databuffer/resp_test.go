package databuffer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

func sent(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

func TestCommandsAreRead(t *testing.T) {
	long := strings.Repeat("x", 2*heldMost)
	for name, words := range map[string][]string{
		"one word": {"PING"}, "empty word": {"ECHO", ""}, "binary": {"SET", "a\r\nb", "\x00*1\r\n"},
		"many": strings.Fields("MSET" + strings.Repeat(" key value", 1000)),
		"long": {"SET", "k", long}, "long in the middle": {"MSET", "a", long, "b", "c", "d", long}, "long name": {long, "k"},
	} {
		t.Run(name, func(t *testing.T) {
			text := sent(words...)
			in := bufio.NewReaderSize(strings.NewReader(text+sent("NEXT")), lineMost)
			c, err := readCommand(in)
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range c.words {
				if string(w) != words[i] {
					t.Errorf("word %d is %.40q, want %.40q", i, w, words[i])
				}
			}
			if c.whole() != (len(text) <= heldMost) || c.whole() && len(c.words) != len(words) {
				t.Errorf("of %d words, %d are held; whole: %v", len(words), len(c.words), c.whole())
			}
			var passed bytes.Buffer
			to := bufio.NewWriter(&passed)
			_, _ = to.Write(c.raw) // to memory
			if err := c.passRest(to, in); err != nil {
				t.Fatal(err)
			}
			_ = to.Flush()
			if passed.String() != text {
				t.Errorf("%d bytes are passed on of %d", passed.Len(), len(text))
			}
			if next, err := readCommand(in); err != nil || next.name() != "NEXT" {
				t.Errorf("the next command is lost: %v", err)
			}
		})
	}
}

func TestRepliesArePassedOn(t *testing.T) {
	for name, reply := range map[string]string{
		"line": "+OK\r\n", "error": "-ERR no\r\n", "number": ":-1\r\n", "nil": "$-1\r\n", "nil list": "*-1\r\n", "null": "_\r\n",
		"word": "$5\r\nhe\r\nl\r\n", "empty": "$0\r\n\r\n", "list": "*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n+x\r\n", "empty list": "*0\r\n",
		"map": "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "set": "~2\r\n:1\r\n:2\r\n", "other kinds": "*5\r\n#t\r\n,1.5\r\n(123\r\n=7\r\ntxt:abc\r\n!3\r\nbad\r\n",
		"attributes": "|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n", "long": "$200000\r\n" + strings.Repeat("y", 200000) + "\r\n",
		"a push": ">2\r\n+invalidate\r\n*1\r\n+k\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			in := bufio.NewReaderSize(strings.NewReader(reply+"+next\r\n"), lineMost)
			var passed bytes.Buffer
			to := bufio.NewWriter(&passed)
			pushed, err := passReply(to, in)
			if err != nil || pushed != (name == "a push") {
				t.Fatal(pushed, err)
			}
			_ = to.Flush()
			if passed.String() != reply {
				t.Errorf("%.80q is passed on of %.80q", passed.String(), reply)
			}
			if rest, _ := io.ReadAll(in); string(rest) != "+next\r\n" {
				t.Errorf("%.40q is left", rest)
			}
		})
	}
}

func FuzzReadCommand(f *testing.F) {
	for _, s := range []string{sent("GET", "k"), "*1\r\n$-1\r\n", "*2\r\n$3\r\nGET\r\n$999999999\r\n", "PING\r\n", "*0\r\n", "*\r\n", "\r\n", "*1\n$1\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(b), lineMost)
		c, err := readCommand(in)
		if err != nil {
			return
		}
		if len(c.raw) > heldMost || !bytes.HasPrefix(b, c.raw) {
			t.Errorf("%d bytes are held, which are others than were sent", len(c.raw))
		}
		for _, w := range c.words {
			if !bytes.Contains(c.raw, w) {
				t.Errorf("a word is not a part of the command")
			}
		}
	})
}

func FuzzPassReply(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "*2\r\n:1\r\n", "*-2\r\n", "%9999999999\r\n", "|1\r\n", "$3\r\nab", ">1\r\n+x\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var passed bytes.Buffer
		to := bufio.NewWriter(&passed)
		_, _ = passReply(to, bufio.NewReaderSize(bytes.NewReader(b), lineMost))
		_ = to.Flush()
		if !bytes.HasPrefix(b, passed.Bytes()) {
			t.Errorf("other bytes are passed on than were sent")
		}
	})
}
