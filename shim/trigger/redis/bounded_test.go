package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/trigger"
)

// said is a connection whose other side says this, in parts.
type said struct {
	net.Conn
	parts io.Reader
}

func (s said) Read(p []byte) (int, error)  { return s.parts.Read(p) }
func (s said) Write(p []byte) (int, error) { return len(p), nil }

// small reads a few bytes at a time.
type small struct {
	io.Reader
	step int
}

func (s small) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.step)]) }

func ask(answer io.Reader) *bounded {
	c := &bounded{Conn: said{parts: answer}}
	_, _ = c.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	return c
}

// Whatever is no more than may be is passed on as it is, wherever its parts begin.
func TestAnAnswerThatFitsPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var answer bytes.Buffer
		for range rapid.IntRange(0, 20).Draw(t, "values") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				fmt.Fprintf(&answer, "*%d\r\n", rapid.IntRange(-1, 10).Draw(t, "array"))
			case 1:
				answer.WriteString("$-1\r\n")
			case 2:
				fmt.Fprintf(&answer, "-ERR %s\r\n", rapid.StringMatching(`[ -~]{0,100}`).Draw(t, "error"))
			default: // also of bytes that look like a value's beginning
				v := rapid.SampledFrom([]string{"", "x", "$99999999999\r\n", "\r\n$1", "frames and frames"}).Draw(t, "value")
				fmt.Fprintf(&answer, "$%d\r\n%s\r\n", len(v), v)
			}
		}
		want := bytes.Clone(answer.Bytes())
		got, err := io.ReadAll(ask(small{&answer, rapid.IntRange(1, 40).Draw(t, "step")}))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q becomes %q, %v", want, got, err)
		}
	})
}

// A value that is too large is not even begun, and many small ones are cut where they are too much.
func TestAnAnswerThatIsTooLarge(t *testing.T) {
	for name, answer := range map[string]io.Reader{
		"a value":                bytes.NewReader(fmt.Appendf(nil, "*1\r\n$%d\r\nxxx", trigger.TakeMost)),
		"the largest there is":   bytes.NewReader([]byte("$99999999999999999999\r\nxxx")),
		"the second of two":      io.MultiReader(bytes.NewReader(fmt.Appendf(nil, "$%d\r\n", trigger.TakeMost/2)), bytes.NewReader(make([]byte, trigger.TakeMost/2)), bytes.NewReader(fmt.Appendf(nil, "\r\n$%d\r\n", trigger.TakeMost/2))),
		"many":                   bytes.NewReader(bytes.Repeat([]byte("$1\r\nx\r\n"), trigger.TakeMost/7+1)),
		"a line that never ends": bytes.NewReader(make([]byte, trigger.TakeMost+1)),
	} {
		t.Run(name, func(t *testing.T) {
			c := ask(answer)
			if n, err := io.Copy(io.Discard, c); !errors.Is(err, errTooMuch) || n > trigger.TakeMost {
				t.Errorf("after %d bytes: %v", n, err)
			}
			if len(c.head) > headMost {
				t.Errorf("%d bytes of a line are kept", len(c.head))
			}
		})
	}
}

// Each command's answer counts for itself.
func TestEachAnswerCountsForItself(t *testing.T) {
	half := fmt.Appendf(nil, "$%d\r\n%s\r\n", trigger.TakeMost/2, make([]byte, trigger.TakeMost/2))
	c := ask(bytes.NewReader(bytes.Repeat(half, 4)))
	for range 4 {
		if _, err := io.CopyN(io.Discard, c, int64(len(half))); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(nil)
	}
}
