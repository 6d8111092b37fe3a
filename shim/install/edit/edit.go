// Package edit puts a marked part into a containerd configuration, and takes it out
// again. Every other byte stays as it is.
package edit

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

const (
	// begin and end are lines of their own around what is Headstart's.
	begin = "# headstart: begin"
	end   = "# headstart: end"
	// joined follows begin where the line's own beginning is Headstart's too: the file had
	// no line break there.
	joined = ", joined"
)

// ErrUnfinished is returned for a file with the first marker and not the second.
var ErrUnfinished = errors.New(`"` + begin + `" has no "` + end + `"`)

// Append returns text with body, which ends with a line break, as a marked part at its
// end.
func Append(text []byte, body string) []byte {
	mark := begin + "\n"
	if len(text) > 0 && text[len(text)-1] != '\n' {
		mark = "\n" + begin + joined + "\n"
	}
	return bytes.Join([][]byte{text, []byte(mark + body + end + "\n")}, nil)
}

// Strip returns text without marked parts, and whether there were any. It undoes Append
// and Import to the byte.
func Strip(text []byte) (rest []byte, found bool, err error) {
	rest, marked, err := split(text)
	return rest, len(marked) > 0, err
}

// Same tells whether two texts have the same marked parts and the same other bytes,
// wherever the parts are.
func Same(a, b []byte) bool {
	restA, markedA, errA := split(a)
	restB, markedB, errB := split(b)
	return errA == nil && errB == nil && bytes.Equal(restA, restB) && bytes.Equal(markedA, markedB)
}

// split takes the marked parts out of text.
func split(text []byte) (rest, marked []byte, err error) {
	for line := 1; len(text) > 0; line++ {
		this, after := cutLine(text)
		head := trim(this)
		if head != begin && head != begin+joined {
			rest, text = append(rest, this...), after
			continue
		}
		first := line
		for ; trim(this) != end; line++ {
			if len(after) == 0 {
				return nil, nil, fmt.Errorf("line %d: %w", first, ErrUnfinished)
			}
			this, after = cutLine(after)
			marked = append(marked, this...)
		}
		if head == begin+joined {
			rest = bytes.TrimSuffix(rest, []byte("\n"))
		}
		text = after
	}
	return rest, marked, nil
}

// Import returns text with path as the first of containerd's imports.
func Import(text []byte, path string) ([]byte, error) {
	at, err := imports(text)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		part := fmt.Sprintf("%s\nimports = [%s]\n%s\n", begin, strconv.Quote(path), end)
		return append([]byte(part), text...), nil
	}
	part := fmt.Sprintf("\n%s%s\n%s,\n%s\n", begin, joined, strconv.Quote(path), end)
	return bytes.Join([][]byte{text[:at], []byte(part), text[at:]}, nil), nil
}

// imports returns where in text the array of imports begins, after its bracket, and -1 if
// there is none.
func imports(text []byte) (int, error) {
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			break
		}
		if e.Kind != unstable.KeyValue {
			continue
		}
		key := e.Key()
		if !key.Next() || string(key.Node().Data) != "imports" || !key.IsLast() {
			continue
		}
		raw := key.Node().Raw
		for i := int(raw.Offset + raw.Length); i < len(text); i++ {
			if text[i] == '[' {
				return i + 1, nil
			}
		}
	}
	if err := p.Error(); err != nil {
		return 0, err
	}
	return -1, nil
}

// cutLine returns text's first line with its line break, and what follows.
func cutLine(text []byte) (line, after []byte) {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1], text[i+1:]
	}
	return text, nil
}

// trim takes off a line's break, also that of an editor which writes CR LF.
func trim(line []byte) string {
	return string(bytes.TrimRight(line, "\r\n"))
}
