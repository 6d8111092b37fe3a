package knative

import (
	"bytes"
	"iter"
)

// chunk is the text of one document, with its own --- line if it has one.
type chunk struct {
	line int // of the stream where it starts, from 1
	text []byte
}

// split yields the documents of a stream. A line that starts with --- always starts a
// document, even inside a block scalar (YAML 1.2, section 9.1.4), so looking at line
// starts is enough. Taking documents apart first lets each be bounded before the parser
// builds anything, and one broken document leave the others readable.
func split(data []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		current, line := chunk{line: 1}, 0
		for rest := data; len(rest) > 0; {
			end := bytes.IndexByte(rest, '\n') + 1
			if end == 0 {
				end = len(rest)
			}
			line++
			if isMarker(rest[:end]) && len(current.text) > 0 {
				if !yield(current) {
					return
				}
				current = chunk{line: line}
			}
			// Chunks are neighbours in data, so growing one is a matter of its length.
			start := len(data) - len(rest)
			current.text = data[start-len(current.text) : start+end]
			rest = rest[end:]
		}
		if len(current.text) > 0 {
			yield(current)
		}
	}
}

// isMarker reports whether the line starts a document: --- and then space or its end.
func isMarker(line []byte) bool {
	after, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(after) == 0 || bytes.IndexByte([]byte(" \t\r\n"), after[0]) >= 0)
}
