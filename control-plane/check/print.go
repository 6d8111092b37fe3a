package check

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// problemsMost is how many problems of one check are printed: a screenful.
const problemsMost = 20

// Printer writes results for people, as they come. Err is what went wrong with that.
type Printer struct {
	Out   io.Writer
	Color bool
	Err   error
}

// colors of the results, as ECMA-48 has them.
var colors = map[Status]string{Pass: "32", Warn: "33", Fail: "31", Skip: "2"}

// Print writes a result.
func (p *Printer) Print(r Result) {
	word := fmt.Sprintf("%-4s", r.Status)
	if p.Color {
		word = "\x1b[" + colors[r.Status] + "m" + word + "\x1b[0m"
	}
	const titleWidth = 24 // of the longest
	lines := []string{strings.TrimRight(fmt.Sprintf("%s  %-*s %s", word, titleWidth, r.Name, nodeapi.Printable(r.Message)), " ")}
	for i, problem := range r.Problems {
		if i == problemsMost {
			lines = append(lines, fmt.Sprintf("      and %d more", len(r.Problems)-i))
			break
		}
		text := nodeapi.Printable(problem.Message)
		if problem.Object != "" {
			text = nodeapi.Printable(problem.Object) + ": " + text
		}
		lines = append(lines, "      "+text)
	}
	if r.Hint != "" {
		lines = append(lines, "      "+r.Hint)
	}
	if r.Docs != "" {
		lines = append(lines, "      See "+r.Docs)
	}
	_, err := fmt.Fprintln(p.Out, strings.Join(lines, "\n"))
	p.Err = errors.Join(p.Err, err)
}
