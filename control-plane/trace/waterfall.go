package trace

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// WidthMin is the narrowest waterfall, in columns; narrower terminals wrap it.
	WidthMin = 60
	// widthMax bounds the memory of a line.
	widthMax = 1000
	// nameShare is the part of the width that names may take: one over this.
	nameShare = 3
	// serviceWidth fits the longest of our own services, "controlplane".
	serviceWidth = 12
	// barMin is the narrowest bar column that shows anything; below it, the column
	// of services goes.
	barMin = 16
	// quote begins the lines that a function or the runtime has said.
	quote = "  │ "
)

// WaterfallOptions are how a waterfall looks.
type WaterfallOptions struct {
	// Width is the terminal's, in columns; below WidthMin counts as WidthMin.
	Width int
	// Color adds ANSI colors.
	Color bool
}

// Waterfall prints the trace, one line per span: its place in the tree, its service,
// when it ran, and start and duration in milliseconds. Errors and requests that went on
// without help are told below. It prints nothing of a trace that a terminal would obey.
func Waterfall(w io.Writer, t Trace, o WaterfallOptions) error {
	if len(t.Spans) == 0 {
		_, err := fmt.Fprintf(w, "trace %s has no spans\n", printable(t.ID))
		return err
	}
	var out bytes.Buffer
	f := newFall(t, o)
	f.header(&out)
	for i := range t.Spans {
		f.line(&out, i)
	}
	f.notes(&out)
	_, err := w.Write(out.Bytes())
	return err
}

// fall is a waterfall's layout.
type fall struct {
	t        Trace
	paint    painter
	tree     []string // glyphs before each name
	start    time.Time
	length   time.Duration
	width    int // of the whole
	names    int // widths of the columns, 0 for none
	services int
	bars     int
	numbers  int
	marks    int
	marked   []string
}

func newFall(t Trace, o WaterfallOptions) *fall {
	f := &fall{t: t, paint: painter(o.Color), tree: t.treeGlyphs(), width: min(max(o.Width, WidthMin), widthMax)}
	end := t.Spans[0].End
	f.start = t.Spans[0].Start
	for i, s := range t.Spans {
		if s.Start.Before(f.start) {
			f.start = s.Start
		}
		if s.End.After(end) {
			end = s.End
		}
		f.names = max(f.names, columns(f.tree[i])+columns(printable(s.Name)))
		f.services = max(f.services, columns(printable(shortService(s.Service))))
		f.marked = append(f.marked, marksOf(s))
		f.marks = max(f.marks, columns(f.marked[i]))
	}
	f.length = max(end.Sub(f.start), 1)
	f.names = min(f.names, f.width/nameShare)
	f.services = min(f.services, serviceWidth)
	f.numbers = max(len(milliseconds(f.length)), len("took ms"))
	layout := func() int {
		rest := f.width - f.names - 2*(f.numbers+1)
		for _, column := range []int{f.services, f.marks} {
			if column > 0 {
				rest -= column + 1
			}
		}
		return rest - 1
	}
	if f.bars = layout(); f.bars < barMin {
		f.services = 0
		f.bars = layout()
	}
	if f.bars < barMin { // centuries, from a hostile clock, make wide numbers
		f.names -= barMin - f.bars
		f.bars = barMin
	}
	return f
}

// header prints the trace's own line and the scale.
func (f *fall) header(out *bytes.Buffer) {
	sum := f.t.Summary()
	parts := []string{"trace " + f.t.ID, milliseconds(f.length) + " ms"}
	if sum.ColdStart {
		parts = append(parts, "cold start")
	}
	if sum.Function != "" {
		parts = append(parts, sum.Function)
	}
	fmt.Fprintln(out, f.paint.bold(fit(printable(strings.Join(parts, "   ")), f.width)))

	end := milliseconds(f.length)
	scale := "0" + strings.Repeat(" ", max(0, f.bars-1-len(end))) + end
	f.row(out, pad("", f.names), pad("", f.services), f.paint.dim(scale), f.paint.dim(f.number("at ms")), f.paint.dim(f.number("took ms")), "")
}

func (f *fall) line(out *bytes.Buffer, i int) {
	s := f.t.Spans[i]
	color := f.paint.service(s.Service)
	if s.Status == Error {
		color = f.paint.red
	}
	name := fit(printable(s.Name), max(0, f.names-columns(f.tree[i])))
	tree := fit(f.tree[i], f.names)
	offset := s.Start.Sub(f.start)
	mark := f.marked[i]
	if s.Status == Error {
		mark = f.paint.red(mark)
	}
	f.row(out,
		f.paint.dim(tree)+pad(name, f.names-columns(tree)),
		f.paint.dim(pad(fit(printable(shortService(s.Service)), f.services), f.services)),
		f.bar(offset, s.Duration(), color),
		f.paint.dim(f.number(milliseconds(offset))), f.number(milliseconds(s.Duration())), mark)
}

// row prints the columns that there are; all but the last come padded.
func (f *fall) row(out *bytes.Buffer, name, service, bars, start, duration, mark string) {
	cells := []string{name, service, bars, start, duration, mark}
	if f.services == 0 {
		cells = slices.Delete(cells, 1, 2)
	}
	fmt.Fprintln(out, strings.TrimRight(strings.Join(cells, " "), " "))
}

// number aligns a number, or its heading, to the right.
func (f *fall) number(s string) string { return fmt.Sprintf("%*s", f.numbers, s) }

// bar draws a span at half a column's precision. Every span shows, however short.
func (f *fall) bar(offset, length time.Duration, color func(string) string) string {
	halves := 2 * f.bars
	scale := float64(halves) / float64(f.length)
	from := min(max(int(float64(offset)*scale), 0), halves-1)
	to := min(max(int(float64(offset+length)*scale+0.5), from+1), halves)
	var bar strings.Builder
	for at := from / 2 * 2; at < to; at += 2 {
		switch left, right := at >= from, at+1 < to; {
		case left && right:
			bar.WriteRune('━')
		case left:
			bar.WriteRune('╸')
		default:
			bar.WriteRune('╺')
		}
	}
	before := from / 2
	return strings.Repeat(" ", before) + color(bar.String()) + strings.Repeat(" ", f.bars-before-columns(bar.String()))
}

// notes tells of errors, of requests that went on without help, and of lost spans.
func (f *fall) notes(out *bytes.Buffer) {
	for _, s := range f.t.Spans {
		if s.Status == Error {
			f.note(out, f.paint.red, "✗ "+s.Name+": "+s.Message)
			for _, line := range s.Log {
				for _, part := range wrapped(printable(line), f.width-columns(quote)) {
					f.note(out, f.paint.dim, quote+part)
				}
			}
		}
		if reason := s.text(string(tracing.Degraded)); reason != "" {
			f.note(out, f.paint.yellow, "! "+s.Name+" went on without Headstart: "+reason)
		}
	}
	if f.t.Dropped > 0 {
		f.note(out, f.paint.yellow, fmt.Sprintf("! %d more spans did not fit", f.t.Dropped))
	}
	f.note(out, f.paint.bold, f.t.Saved().String())
}

func (f *fall) note(out *bytes.Buffer, color func(string) string, text string) {
	fmt.Fprintln(out, color(fit(printable(text), f.width)))
}

func marksOf(s Span) string {
	var marks []string
	if s.Status == Error {
		marks = append(marks, "✗")
	}
	if s.cold() {
		marks = append(marks, "cold")
	}
	for _, way := range []string{s.text(string(tracing.InputWay)), s.text(string(tracing.VolumeWay))} {
		if way != "" {
			marks = append(marks, printable(way))
		}
	}
	return strings.Join(marks, " ")
}

// milliseconds prints d with a tenth of a millisecond.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

// shortService is the service's name without what all of ours have in common.
func shortService(service string) string {
	if service == tracing.ServiceShim {
		return "shim"
	}
	return strings.TrimPrefix(service, "headstart-")
}

// treeGlyphs returns what stands before each span's name: the lines of the tree.
func (t Trace) treeGlyphs() []string {
	depths := t.depths()
	glyphs := make([]string, len(depths))
	// Backwards, it is known which levels go on below: below[d] for depth d.
	below := make([]bool, len(depths)+1)
	for i := len(depths) - 1; i >= 0; i-- {
		d := depths[i]
		var g strings.Builder
		for level := 1; level < d; level++ {
			if below[level] {
				g.WriteString("│ ")
			} else {
				g.WriteString("  ")
			}
		}
		if d > 0 && below[d] {
			g.WriteString("├ ")
		} else if d > 0 {
			g.WriteString("└ ")
		}
		glyphs[i] = g.String()
		below[d] = true
		clear(below[d+1:])
	}
	return glyphs
}
