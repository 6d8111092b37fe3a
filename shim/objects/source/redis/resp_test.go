package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

func TestReplies(t *testing.T) {
	for said, want := range map[string]reply{
		"+OK\r\n":                  {kind: '+', text: "OK"},
		":17\r\n":                  {kind: ':', text: "17"},
		"$0\r\n\r\n":               {kind: '$'},
		"$4\r\na\r\nb\r\n":         {kind: '$', text: "a\r\nb"},
		"$-1\r\n":                  {kind: '$', text: "-1", null: true},
		"*0\r\n":                   {kind: '*', text: "0"},
		"*-1\r\n":                  {kind: '*', text: "-1", null: true},
		"-ERR what is\rthat? \r\n": {kind: '-', err: refusal("ERR what is\rthat? ")},
	} {
		in := bufio.NewReader(iotest.OneByteReader(strings.NewReader(said)))
		if got, err := readReply(in, 4); err != nil || got != want {
			t.Errorf("%q is %+v, %v", said, got, err)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("%q is not read to its end", said)
		}
		if _, err := readReply(bufio.NewReader(strings.NewReader(said[:len(said)-1])), 4); err == nil {
			t.Errorf("%q is taken without its end", said)
		}
	}
}

// What is no answer to a question is refused before there is room for it.
func TestRepliesThatAreNone(t *testing.T) {
	for _, said := range []string{
		"\r\n", "\n", "OK\r\n", "+OK\n", "$5\r\nabcde\r\n", "$-2\r\n", "$\r\n", "$1x\r\n", "$9223372036854775808\r\n",
		"$1\r\nabc", "*1\r\n:1\r\n", "*-2\r\n", "_\r\n", "%1\r\n+a\r\n:1\r\n", ">1\r\n+a\r\n",
		"-" + strings.Repeat("x", headerLimit) + "\r\n", strings.Repeat("+", 10*headerLimit),
	} {
		if got, err := readReply(bufio.NewReaderSize(strings.NewReader(said), headerLimit), 4); !errors.Is(err, errProtocol) {
			t.Errorf("%.20q is %+v, %v", said, got, err)
		}
	}
}

func TestReplyOfAnotherKind(t *testing.T) {
	for _, r := range []reply{{kind: '+', text: "1"}, {kind: ':', text: "-1"}, {kind: ':', text: "1x"}, {kind: '$', text: "1"}} {
		if n, err := r.number(); !errors.Is(err, errProtocol) {
			t.Errorf("%+v is %d, %v", r, n, err)
		}
	}
	for _, r := range []reply{{kind: '+', text: "a"}, {kind: '$', null: true}, {kind: '*'}} {
		if text, err := r.bytes(); !errors.Is(err, errProtocol) {
			t.Errorf("%+v is %q, %v", r, text, err)
		}
	}
}

// said is a connection by which the server says something, whatever it is told.
type said struct {
	net.Conn
	in     io.Reader
	closed bool
}

func (s *said) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *said) Write(p []byte) (int, error) { return len(p), nil }
func (s *said) Close() error                { s.closed = true; return nil }

func FuzzReadReply(f *testing.F) {
	f.Add([]byte("+OK\r\n:0\r\n$4\r\nabcd\r\n*-1\r\n-ERR no\r\n"))
	f.Add([]byte("$4\r\nabcd\r"))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(text), headerLimit)
		for {
			r, err := readReply(in, 4)
			if err != nil {
				return
			}
			if r.kind == '$' && len(r.text) > 4 || r.kind == '-' != (r.err != nil) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Whatever the server says, a stream hands out what has been said of the value and nothing
// else; and its connection is used again only if that was all.
func FuzzStream(f *testing.F) {
	f.Add([]byte("$5\r\nabcde\r\n"), int64(5), false)
	f.Add([]byte("$5\r\nabcde\r\n+"), int64(5), true)
	f.Add([]byte("$5\r\nabcde"), int64(5), true)
	f.Add([]byte("$4\r\nabcd\r\n"), int64(5), false)
	f.Add([]byte("-WRONGTYPE no\r\n"), int64(5), false)
	f.Fuzz(func(t *testing.T, text []byte, end int64, slow bool) {
		if end < 1 || end > piece {
			return
		}
		s, err := New(config("redis.test:6379"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		conn := &said{in: bytes.NewReader(text)}
		if slow {
			conn.in = iotest.OneByteReader(conn.in)
		}
		s.lines.put(newLine(conn, 0, secret.Secret{}))
		s.lines.dialer = func(context.Context) (net.Conn, error) { return nil, io.ErrClosedPipe }
		header := fmt.Appendf(nil, "$%d\r\n", end)
		part, err := s.object(testRef("k"), "").stream(t.Context(), 0, end)
		var got []byte
		if err == nil {
			got, err = io.ReadAll(part)
			_ = part.Close()
		}
		content, begun := bytes.CutPrefix(text, header)
		if !begun && len(got) > 0 || begun && !bytes.HasPrefix(content, got) || int64(len(got)) > end {
			t.Errorf("of %q comes %q", text, got)
		}
		complete := begun && int64(len(content)) >= end+2 && string(content[end:end+2]) == "\r\n"
		if complete != (err == nil) || complete && int64(len(got)) != end {
			t.Errorf("%q gives %d bytes, %v", text, len(got), err)
		}
		if kept := len(s.lines.idle) == 1; kept == conn.closed || kept && !complete {
			t.Errorf("after %q the line is kept: %t, and closed: %t", text, kept, conn.closed)
		}
	})
}
