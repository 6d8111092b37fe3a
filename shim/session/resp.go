package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// What is spoken are versions 2 and 3 of Redis' protocol (RESP).

const (
	// wordsLimit bounds the words of a command that belongs to a start-up. The longest one is HELLO with all its options.
	wordsLimit = 16
	// repliesLimit bounds what a server replies to one command, in bytes. The longest reply is HELLO's, which lists the
	// modules.
	repliesLimit = 64 << 10
	// lineLimit bounds a line of a reply, in bytes; the longest ones are errors.
	lineLimit = 4 << 10
	// depthLimit bounds lists within lists. HELLO's reply has three levels.
	depthLimit = 8
)

var (
	errReply = errors.New("the server's reply is not Redis' protocol")
	// errOther is a command that belongs to no start-up, whatever it is.
	errOther = errors.New("not a command of a start-up")

	lineEnd = []byte("\r\n")
)

// AppendCommand appends a command as it is sent, and as a Start has it.
func AppendCommand(to []byte, words ...string) []byte {
	to = fmt.Appendf(to, "*%d\r\n", len(words))
	for _, word := range words {
		to = fmt.Appendf(to, "$%d\r\n%s\r\n", len(word), word)
	}
	return to
}

// parseCommand returns the words of the first command, and how many bytes it has; 0: not all are there.
func parseCommand(in []byte) (words []string, size int, err error) {
	count, rest, err := parseLength(in, '*', wordsLimit)
	if err != nil || rest == nil {
		return nil, 0, err
	}
	for range count {
		var n int
		n, rest, err = parseLength(rest, '$', inLimit)
		if err != nil || rest == nil || len(rest) < n+len(lineEnd) {
			return nil, 0, err
		}
		if !bytes.HasPrefix(rest[n:], lineEnd) {
			return nil, 0, errOther
		}
		words = append(words, string(rest[:n]))
		rest = rest[n+len(lineEnd):]
	}
	if len(words) == 0 {
		return nil, 0, errOther
	}
	return words, len(in) - len(rest), nil
}

// parseLength reads a line of a sign and a number up to limit. Without an error and a rest the line is not complete.
func parseLength(in []byte, sign byte, limit int) (n int, rest []byte, err error) {
	if len(in) > 0 && in[0] != sign {
		return 0, nil, errOther
	}
	line, rest, ended := bytes.Cut(in, lineEnd)
	if !ended {
		return 0, nil, nil
	}
	n, err = strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 || n > limit {
		return 0, nil, errOther
	}
	return n, rest, nil
}

// readReply appends a whole reply to raw.
func readReply(in *bufio.Reader, raw []byte, depth int) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errReply
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(line, lineEnd) || len(line) <= len(lineEnd) {
		return nil, errReply
	}
	kind, text := line[0], string(line[1:len(line)-len(lineEnd)])
	if raw = append(raw, line...); len(raw) > repliesLimit {
		return nil, errReply
	}
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return raw, nil
	case '$', '=', '!', '*', '~', '%':
	default: // among them what a server pushes, which none does before it is asked to
		return nil, errReply
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > repliesLimit {
		return nil, errReply
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return raw, nil
		}
		return readBytes(in, raw, n)
	case '%':
		n *= 2 // keys and values
	}
	if n > 0 && depth == depthLimit {
		return nil, errReply
	}
	for range n {
		if raw, err = readReply(in, raw, depth+1); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func readBytes(in *bufio.Reader, raw []byte, n int) ([]byte, error) {
	at := len(raw)
	if at+n+len(lineEnd) > repliesLimit {
		return nil, errReply
	}
	raw = append(raw, make([]byte, n+len(lineEnd))...)
	if _, err := io.ReadFull(in, raw[at:]); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(raw, lineEnd) {
		return nil, errReply
	}
	return raw, nil
}
