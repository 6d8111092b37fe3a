package timeline

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Sizes in the SVG's own units, which are pixels at its natural size.
const (
	svgWidth    = 960.0
	svgMargin   = 24.0
	legendSpace = 40.0
	titleSpace  = 24.0
	laneHeight  = 24.0
	laneSpace   = 4.0
	rowSpace    = 20.0
	axisSpace   = 28.0
	// charWidth is about the width of a letter at 12 px; labels wider than their bar
	// would run over it.
	charWidth = 6.8
	// ticksMax is how many ticks the axis has at most.
	ticksMax = 10
)

// svgStyle colors bars so that white text reads well on them on any ground, and text
// and lines after the reader's color scheme. It is one line because XML would escape
// line ends.
const svgStyle = `text{font:12px system-ui,sans-serif;fill:#1f2328}` +
	`.title{font-weight:600;font-size:14px}.end{text-anchor:end}.tick{text-anchor:middle;fill:#59636e}` +
	`.in{fill:#fff}.grid{stroke:#d1d9e0}.track{fill:#818b98;fill-opacity:.15}` +
	`.bound{stroke:#1f2328;stroke-width:2;stroke-dasharray:5 4}` +
	`.schedule{fill:#6e7781}.cold-start{fill:#0969da}.transfer{fill:#bc4c00}.execute{fill:#1a7f37}.other{fill:#8250df}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6edf3}.tick{fill:#9198a1}` +
	`.in{fill:#fff}.grid{stroke:#3d444d}.bound{stroke:#e6edf3}}`

// The elements are structs, so that encoding/xml escapes every text.
type (
	svgRoot struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		ViewBox string   `xml:"viewBox,attr"`
		Width   string   `xml:"width,attr"`
		Height  string   `xml:"height,attr"`
		Role    string   `xml:"role,attr"`
		Title   string   `xml:"title"`
		Style   string   `xml:"style"`
		Items   []any
	}
	svgRect struct {
		XMLName xml.Name `xml:"rect"`
		Class   string   `xml:"class,attr"`
		X       px       `xml:"x,attr"`
		Y       px       `xml:"y,attr"`
		Width   px       `xml:"width,attr"`
		Height  px       `xml:"height,attr"`
		Round   px       `xml:"rx,attr"`
		Title   string   `xml:"title,omitempty"`
	}
	svgText struct {
		XMLName xml.Name `xml:"text"`
		Class   string   `xml:"class,attr,omitempty"`
		X       px       `xml:"x,attr"`
		Y       px       `xml:"y,attr"`
		Text    string   `xml:",chardata"`
	}
	svgLine struct {
		XMLName xml.Name `xml:"line"`
		Class   string   `xml:"class,attr"`
		X1      px       `xml:"x1,attr"`
		Y1      px       `xml:"y1,attr"`
		X2      px       `xml:"x2,attr"`
		Y2      px       `xml:"y2,attr"`
	}
)

// px is a length with a tenth of a pixel, so that equal input gives equal files.
type px float64

func (p px) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(p)*10)/10, 'f', -1, 64), nil
}

// chart is the drawing as it grows downwards.
type chart struct {
	items []any
	y     float64
	scale float64 // pixels per nanosecond
}

// Draw writes the rows as one self-contained SVG on a common scale, the first row
// on top. The same rows give the same bytes.
func Draw(w io.Writer, rows []Timeline) error {
	var longest time.Duration = 1
	for _, r := range rows {
		longest = max(longest, r.Total, r.Bound)
		for _, b := range r.Bars {
			longest = max(longest, b.End)
		}
	}
	c := &chart{y: svgMargin, scale: (svgWidth - 2*svgMargin) / float64(longest)}
	c.legend()
	top := c.y
	for _, r := range rows {
		c.row(r)
	}
	grid := c.axis(top, longest)
	root := svgRoot{
		ViewBox: fmt.Sprintf("0 0 %.0f %.0f", svgWidth, c.y),
		Width:   fmt.Sprintf("%.0f", svgWidth),
		Height:  fmt.Sprintf("%.0f", c.y),
		Role:    "img",
		Title:   "What a request waits for, over time",
		Style:   svgStyle,
		Items:   append(grid, c.items...), // lines lie below the bars
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", " ")
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("writing timelines: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (c *chart) x(at time.Duration) float64 { return svgMargin + float64(max(0, at))*c.scale }

func (c *chart) legend() {
	const swatch, step = 12.0, 120.0
	x := svgMargin
	for _, p := range []Phase{Schedule, ColdStart, Transfer, Execute} {
		c.add(svgRect{Class: class(p), X: px(x), Y: px(c.y), Width: swatch, Height: swatch, Round: 2},
			svgText{X: px(x + swatch + 6), Y: px(c.y + 10.5), Text: string(p)})
		x += step
	}
	c.add(svgLine{Class: "bound", X1: px(x), Y1: px(c.y + swatch/2), X2: px(x + 24), Y2: px(c.y + swatch/2)},
		svgText{X: px(x + 30), Y: px(c.y + 10.5), Text: "bound: schedule + max(cold start, transfer) + execute"})
	c.y += legendSpace
}

func (c *chart) row(l Timeline) {
	note := wholeMS(l.Total)
	if l.Bound > 0 {
		note += ", bound " + wholeMS(l.Bound)
	}
	c.add(svgText{Class: "title", X: svgMargin, Y: px(c.y + 14), Text: l.Label},
		svgText{Class: "end", X: svgWidth - svgMargin, Y: px(c.y + 14), Text: note})
	c.y += titleSpace
	lanes := l.lanes()
	height := float64(max(1, len(lanes)))*(laneHeight+laneSpace) + laneSpace
	width := c.x(l.Total) - svgMargin
	c.add(svgRect{Class: "track", X: svgMargin, Y: px(c.y), Width: px(width), Height: px(height), Round: 3})
	for i, lane := range lanes {
		for _, b := range lane {
			c.bar(b, c.y+laneSpace+float64(i)*(laneHeight+laneSpace))
		}
	}
	if l.Bound > 0 {
		c.add(svgLine{
			Class: "bound", X1: px(c.x(l.Bound)), Y1: px(c.y - 4), X2: px(c.x(l.Bound)), Y2: px(c.y + height + 4),
		})
	}
	c.y += height + rowSpace
}

// bar draws b with as much text as it has room for; the tooltip has all of it.
func (c *chart) bar(b Bar, y float64) {
	name, length := b.Label, wholeMS(max(0, b.End-b.Start))
	if name == "" {
		name = string(b.Phase)
	}
	x := c.x(b.Start)
	width := max(c.x(b.End)-x, 1) // whatever happened can be seen
	c.add(svgRect{Class: class(b.Phase), X: px(x), Y: px(y), Width: px(width), Height: laneHeight, Round: 2,
		Title: name + " " + length})
	for _, text := range []string{name + " " + length, name, length} {
		if float64(utf8.RuneCountInString(text)+2)*charWidth <= width {
			c.add(svgText{Class: "in", X: px(x + charWidth), Y: px(y + 16), Text: text})
			return
		}
	}
}

// axis adds the scale below the rows and returns the lines that lie behind them.
func (c *chart) axis(top float64, longest time.Duration) (grid []any) {
	step := tickStep(longest)
	for at := time.Duration(0); at <= longest; at += step {
		x := c.x(at)
		grid = append(grid, svgLine{Class: "grid", X1: px(x), Y1: px(top), X2: px(x), Y2: px(c.y)})
		inMS := strconv.FormatFloat(float64(at)/float64(time.Millisecond), 'f', -1, 64)
		text := svgText{Class: "tick", X: px(x), Y: px(c.y + 16), Text: inMS}
		if at == 0 {
			text.Text += " ms"
		}
		c.add(text)
		if at > math.MaxInt64-step {
			break
		}
	}
	c.y += axisSpace
	return grid
}

// tickStep is the least 1, 2 or 5 times a power of ten that needs no more than ticksMax
// ticks.
func tickStep(longest time.Duration) time.Duration {
	const least = 10 * time.Microsecond // finer ticks say nothing in milliseconds
	for unit := least; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if step := n * unit; longest/step < ticksMax {
				return step
			}
		}
	}
}

func (c *chart) add(items ...any) { c.items = append(c.items, items...) }

func class(p Phase) string {
	switch p {
	case Schedule, Transfer, Execute:
		return string(p)
	case ColdStart:
		return "cold-start"
	default:
		return "other"
	}
}

func wholeMS(d time.Duration) string {
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
}
