package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// What is spoken is version 2 of Redis' protocol (RESP, "Redis serialization protocol
// specification"), which every connection begins with.

// headerLimit bounds the line that a reply begins with, in bytes. The longest ones are
// messages of errors.
const headerLimit = 4 << 10

// errProtocol is an answer that Redis does not give.
var errProtocol = errors.New("the answer is not Redis' protocol")

// refusal is an error that the server replies.
type refusal string

func (r refusal) Error() string { return string(r) }

// isRefusal reports whether an error is the server's reply.
func isRefusal(err error) bool {
	var said refusal
	return errors.As(err, &said)
}

// encode appends a command, as it is sent.
func encode(to []byte, command ...string) []byte {
	to = fmt.Appendf(to, "*%d\r\n", len(command))
	for _, word := range command {
		to = fmt.Appendf(to, "$%d\r\n%s\r\n", len(word), word)
	}
	return to
}

// getRange is the command for a value's bytes from at up to end.
func getRange(key string, at, end int64) []string {
	return []string{"GETRANGE", key, strconv.FormatInt(at, 10), strconv.FormatInt(end-1, 10)}
}

// reply is what the server says to one command.
type reply struct {
	kind byte
	text string
	null bool
	err  error // a refusal
}

// number returns a reply that is a number, none of which is negative here.
func (r reply) number() (int64, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := strconv.ParseInt(r.text, 10, 64)
	if r.kind != ':' || err != nil || n < 0 {
		return 0, errProtocol
	}
	return n, nil
}

// bytes returns a reply that is a part of a value.
func (r reply) bytes() (string, error) {
	if r.err != nil {
		return "", r.err
	}
	if r.kind != '$' || r.null {
		return "", errProtocol
	}
	return r.text, nil
}

// readReply reads a whole reply of at most limit bytes. Its error is one of the connection;
// the server's is the reply.
func readReply(in *bufio.Reader, limit int64) (reply, error) {
	kind, text, err := readHeader(in)
	if isRefusal(err) {
		return reply{kind: kind, err: err}, nil
	}
	if err != nil {
		return reply{}, err
	}
	r := reply{kind: kind, text: text}
	switch kind {
	case '+', ':':
		return r, nil
	case '$', '*':
		size, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil || size < -1 || size > limit:
			return reply{}, errProtocol
		case size == -1:
			r.null = true
			return r, nil
		case kind == '*' && size > 0: // No command that is sent here has such an answer.
			return reply{}, errProtocol
		case kind == '*':
			return r, nil
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(in, content); err != nil {
			return reply{}, err
		}
		r.text = string(content)
		return r, readEnd(in)
	}
	return reply{}, errProtocol
}

// readHeader reads the line that a reply begins with: its kind, and what it says. The error
// may be a refusal.
func readHeader(in *bufio.Reader) (kind byte, text string, err error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return 0, "", errProtocol
	}
	if err != nil {
		return 0, "", err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return 0, "", errProtocol
	}
	kind, text = line[0], string(line[1:])
	if kind == '-' {
		return kind, "", refusal(text)
	}
	return kind, text, nil
}

// readEnd reads what follows the bytes of a value.
func readEnd(in *bufio.Reader) error {
	var end [2]byte
	if _, err := io.ReadFull(in, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return errProtocol
	}
	return nil
}
