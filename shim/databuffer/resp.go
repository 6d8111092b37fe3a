package databuffer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// What is spoken are versions 2 and 3 of Redis' protocol (RESP). Commands are arrays of bulk strings, as all clients send them.

const (
	// heldMost is how much of a command is read before it is passed on, in bytes. What is longer is passed on as it comes.
	heldMost = 64 << 10
	// lineMost bounds a line of the protocol, in bytes: the longest ones are errors. It is the size of buffers, too.
	lineMost = 16 << 10
	// wordsMost and wordMost are Redis' own limits (networking.c; proto-max-bulk-len), the latter in bytes.
	wordsMost = 1 << 20
	wordMost  = 512 << 20
)

var errProtocol = errors.New("it is not Redis' protocol")

// command is one as a client sends it.
type command struct {
	words [][]byte // those of them that are held
	raw   []byte   // what is held
	rest  int64    // of the word that is not held, in bytes with its end
	left  int      // words after it
}

// name is the command's, in capital letters.
func (c *command) name() string { return c.word(0) }

// word is a word of a command's name, in capital letters.
func (c *command) word(at int) string {
	if at >= len(c.words) {
		return ""
	}
	return strings.ToUpper(string(c.words[at]))
}

// whole tells whether all of it is held.
func (c *command) whole() bool { return c.rest == 0 && c.left == 0 }

func readCommand(in *bufio.Reader) (*command, error) {
	n, line, err := readLength(in, '*', wordsMost)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, errProtocol
	}
	c := &command{raw: bytes.Clone(line)}
	var words [][2]int // where they begin and end: what holds them moves while it grows
	for i := range n {
		size, line, err := readLength(in, '$', wordMost)
		if err != nil {
			return nil, err
		}
		c.raw = append(c.raw, line...)
		whole := size + len("\r\n")
		if len(c.raw)+whole > heldMost {
			c.rest, c.left = int64(whole), n-i-1
			break
		}
		at := len(c.raw)
		c.raw = append(c.raw, make([]byte, whole)...)
		if _, err := io.ReadFull(in, c.raw[at:]); err != nil {
			return nil, err
		}
		words = append(words, [2]int{at, at + size})
	}
	for _, w := range words {
		c.words = append(c.words, c.raw[w[0]:w[1]:w[1]])
	}
	return c, nil
}

// passRest passes on what is not held.
func (c *command) passRest(to *bufio.Writer, in *bufio.Reader) error {
	for rest := c.rest; rest > 0; c.left-- {
		if _, err := io.CopyN(to, in, rest); err != nil {
			return err
		}
		if rest = 0; c.left > 0 {
			size, line, err := readLength(in, '$', wordMost)
			if err != nil {
				return err
			}
			if _, err := to.Write(line); err != nil {
				return err
			}
			rest = int64(size + len("\r\n"))
		}
	}
	return nil
}

// readLength reads a line of a sign and a number. The line is valid until the next read.
func readLength(in *bufio.Reader, sign byte, most int) (n int, line []byte, err error) {
	if line, err = readLine(in); err != nil {
		return 0, nil, err
	}
	n, err = strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || line[0] != sign || n < 0 || n > most {
		return 0, nil, errProtocol
	}
	return n, line, nil
}

func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errProtocol
	}
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errProtocol
	}
	return line, nil
}

// passReply passes a whole reply on. A pushed one is none of a command's.
func passReply(to *bufio.Writer, in *bufio.Reader) (pushed bool, err error) {
	for first, left := true, 1; left > 0; first = false {
		line, err := readLine(in)
		if err != nil {
			return pushed, err
		}
		if _, err := to.Write(line); err != nil {
			return pushed, err
		}
		kind := line[0]
		pushed = pushed || first && kind == '>'
		n := 0
		switch kind {
		case '+', '-', ':', '_', '#', ',', '(':
		case '$', '=', '!', '*', '~', '%', '>', '|':
			if n, err = strconv.Atoi(string(line[1 : len(line)-2])); err != nil || n < -1 || n > wordMost {
				return pushed, errProtocol
			}
		default:
			return pushed, errProtocol
		}
		switch kind {
		case '$', '=', '!':
			if n >= 0 {
				if _, err := io.CopyN(to, in, int64(n+len("\r\n"))); err != nil {
					return pushed, err
				}
			}
			n = 0
		case '%':
			n *= 2
		case '|': // attributes are in front of what they are of
			n = 2*n + 1
		}
		left += max(0, n) - 1
	}
	return pushed, nil
}

// failed is a reply that says an error.
func failed(why string) []byte {
	return fmt.Appendf(nil, "-ERR %s\r\n", strings.NewReplacer("\r", " ", "\n", " ").Replace(why))
}
