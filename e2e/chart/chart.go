// Package chart draws lines and stacked bars as SVG.
package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Lines is a diagram of lines over a common axis.
type Lines struct {
	Title, XLabel, YLabel string
	// LogX has the horizontal axis by powers of ten; all x are above 0 then.
	LogX bool
	// Dense has no marker at each point, nor a number below it.
	Dense  bool
	Series []Series
}

// Series is one line.
type Series struct {
	Name   string
	X, Y   []float64
	Dashed bool
}

// Bars is a diagram of stacked bars.
type Bars struct {
	Title, YLabel string
	// Layers are the names of the parts of each bar, from below.
	Layers []string
	Bars   []Bar
}

// Bar has a value for each layer.
type Bar struct {
	Label  string
	Values []float64
}

// Sizes in pixels. A panel is one diagram; several stand side by side.
const (
	width, height               = 420, 300
	left, right, top, bottom    = 58, 12, 34, 92
	legendLine, ticks           = 14, 5
	plotWidth, plotHeight       = width - left - right, height - top - bottom
	legendTop                   = height - bottom + 48
	barShare                    = 0.65 // of the room that a bar has
	decade                      = 10.0
	markerRadius                = 2.5
	legendColumn, legendColumns = plotWidth / 2, 2
)

// colors tell series and layers apart, also for the colour-blind (Okabe and Ito 2008).
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Panel is Lines or Bars.
type Panel interface {
	draw(*strings.Builder)
}

// Write draws the panels side by side.
func Write(w io.Writer, panels ...Panel) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width*len(panels), height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d 0)">`+"\n", i*width)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (l Lines) draw(b *strings.Builder) {
	var xs, ys []float64
	for _, s := range l.Series {
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	at := func(x float64) float64 { return x }
	if l.LogX {
		at = math.Log10
	}
	lowX, highX := extent(xs, at)
	y := frame(b, l.Title, l.YLabel, ys)
	x := func(v float64) float64 { return left + plotWidth*(at(v)-lowX)/max(highX-lowX, 1e-9) }
	for _, v := range l.marks(xs, lowX, highX) {
		text(b, x(v), height-bottom+14, "middle", number(v))
	}
	text(b, left+plotWidth/2, height-bottom+30, "middle", l.XLabel)
	for i, s := range l.Series {
		color := colors[i%len(colors)]
		var points []string
		for j := range s.X {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(s.X[j]), y(s.Y[j])))
			if l.Dense {
				continue
			}
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`+"\n", x(s.X[j]), y(s.Y[j]), markerRadius, color)
		}
		dash := ""
		if s.Dashed {
			dash = ` stroke-dasharray="4 3"`
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`+"\n", strings.Join(points, " "), color, dash)
		legend(b, i, s.Name, color)
	}
}

// marks are the labelled places of the horizontal axis: powers of ten, round numbers, or the
// data's own.
func (l Lines) marks(xs []float64, low, high float64) []float64 {
	if l.LogX {
		var all []float64
		for e := math.Ceil(low - 1e-9); e <= high+1e-9; e++ {
			all = append(all, math.Pow(decade, e))
		}
		return all
	}
	if l.Dense {
		var all []float64
		step := niceStep((high - low) / ticks)
		for v := math.Ceil(low/step) * step; v <= high; v += step {
			all = append(all, v)
		}
		return all
	}
	seen := map[float64]bool{}
	var all []float64
	for _, x := range xs {
		if !seen[x] {
			seen[x] = true
			all = append(all, x)
		}
	}
	return all
}

func (c Bars) draw(b *strings.Builder) {
	var ys []float64
	for _, bar := range c.Bars {
		sum := 0.0
		for _, v := range bar.Values {
			sum += max(v, 0)
		}
		ys = append(ys, sum)
	}
	y := frame(b, c.Title, c.YLabel, ys)
	room := float64(plotWidth) / float64(max(len(c.Bars), 1))
	for i, bar := range c.Bars {
		x, sum := left+room*(float64(i)+(1-barShare)/2), 0.0
		for j, v := range bar.Values {
			v = max(v, 0) // what is below zero is noise, and nothing to be seen
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y(sum+v), room*barShare, y(sum)-y(sum+v), colors[j%len(colors)])
			sum += v
		}
		text(b, x+room*barShare/2, height-bottom+14, "middle", bar.Label)
	}
	for i, name := range c.Layers {
		legend(b, i, name, colors[i%len(colors)])
	}
}

// frame draws title, axes and the vertical axis' numbers, and returns where a value is.
func frame(b *strings.Builder, title, label string, ys []float64) func(float64) float64 {
	low, high := extent(append([]float64{0}, ys...), func(v float64) float64 { return v })
	step := niceStep((high - low) / ticks)
	low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	y := func(v float64) float64 { return top + plotHeight*(high-v)/(high-low) }
	fmt.Fprintf(b, `<text x="%d" y="18" text-anchor="middle" font-size="13">%s</text>`+"\n", left+plotWidth/2, escape(title))
	for v := low; v <= high+step/2; v += step {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, y(v), left+plotWidth, y(v))
		text(b, left-5, y(v)+4, "end", number(v))
	}
	fmt.Fprintf(b, `<path d="M%d %d V%d H%d" fill="none" stroke="black"/>`+"\n", left, top, top+plotHeight, left+plotWidth)
	fmt.Fprintf(b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", top+plotHeight/2, escape(label))
	return y
}

func legend(b *strings.Builder, i int, name, color string) {
	x, y := left+i%legendColumns*legendColumn, legendTop+i/legendColumns*legendLine
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="9" height="9" fill="%s"/>`+"\n", x, y-8, color)
	text(b, float64(x+13), float64(y), "start", name)
}

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// extent is the least and the largest of the values; one apart if there is only one.
func extent(values []float64, at func(float64) float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, at(v)), max(high, at(v))
	}
	switch {
	case low > high:
		return 0, 1
	case low == high:
		return low, low + 1
	}
	return low, high
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below about.
func niceStep(about float64) float64 {
	power := math.Pow(decade, math.Floor(math.Log10(about)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= about {
			return n * power
		}
	}
	return decade * power
}

func number(v float64) string { return fmt.Sprintf("%.6g", math.Round(v*1e6)/1e6) }
