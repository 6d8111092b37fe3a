package nodeapi

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// lastLinesMost is how many lines say why a program ended: the end of a stack trace.
	lastLinesMost = 10
	// lastLineMost is the longest line kept, in bytes: one that names a cause and its causes.
	lastLineMost = 500
)

// terminalSequence is what colors a log (ECMA-48, CSI), and could do worse to a terminal.
var terminalSequence = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]")

// LastLines returns the last lines of a text as InstanceStatus has them: few, short, printable
// and not empty. A function writes what it likes, and a node sends what it likes.
func LastLines(text string) []string {
	var lines []string
	for _, line := range strings.Split(terminalSequence.ReplaceAllString(text, ""), "\n") {
		if line = strings.TrimRightFunc(Printable(line), unicode.IsSpace); line != "" {
			lines = append(lines, shortened(line))
		}
	}
	return lines[max(len(lines)-lastLinesMost, 0):]
}

// Printable keeps what requests, functions and nodes say on one line, and from moving a
// terminal's cursor or worse.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// shortened cuts a line between two characters.
func shortened(line string) string {
	const more = "…"
	if len(line) <= lastLineMost {
		return line
	}
	end := lastLineMost - len(more)
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + more
}

// LogFile is the name of the file in a node's directory of logs that has the output of a
// function, namespace/name. Both are DNS labels, so a dot between them keeps names apart.
func LogFile(function string) string { return strings.ReplaceAll(function, "/", ".") + ".log" }
