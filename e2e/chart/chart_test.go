package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// draw returns the drawing if it is well-formed.
func draw(t *testing.T, panels ...chart.Panel) string {
	t.Helper()
	var b strings.Builder
	if err := chart.Write(&b, panels...); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	}
}

func TestLines(t *testing.T) {
	s := draw(t, chart.Lines{Title: "a < b", XLabel: "MB", YLabel: "s", LogX: true, Series: []chart.Series{
		{Name: "off", X: []float64{0.001, 1, 100}, Y: []float64{1, 2, 5}}, {Name: "bound", X: []float64{0.001, 1, 100}, Y: []float64{1, 1, 4}, Dashed: true}}})
	for _, want := range []string{"a &lt; b", ">0.001<", ">0.01<", ">100<", ">off<", ">bound<", ">5<", "stroke-dasharray"} {
		if !strings.Contains(s, want) {
			t.Errorf("there is no %s in\n%s", want, s)
		}
	}
}

func TestDenseLinesHaveRoundNumbersAndNoMarkers(t *testing.T) {
	s := chart.Series{Name: "density"}
	for x := 2.5; x < 200; x += 5 {
		s.X, s.Y = append(s.X, x), append(s.Y, x)
	}
	got := draw(t, chart.Lines{Dense: true, Series: []chart.Series{s}})
	for _, want := range []string{">50<", ">100<", ">150<", "<polyline"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
	for _, bad := range []string{"<circle", ">2.5<"} {
		if strings.Contains(got, bad) {
			t.Errorf("there is %s in\n%s", bad, got)
		}
	}
}

func TestBars(t *testing.T) {
	s := draw(t, chart.Bars{Title: "t", YLabel: "s", Layers: []string{"below", "above"}, Bars: []chart.Bar{
		{Label: "one", Values: []float64{1, 2}}, {Label: "two", Values: []float64{1, -0.5}}}}, chart.Bars{})
	for _, want := range []string{">below<", ">above<", ">one<", ">two<", "translate(420 0)"} {
		if !strings.Contains(s, want) {
			t.Errorf("there is no %s in\n%s", want, s)
		}
	}
	if strings.Contains(s, `height="-`) || strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Errorf("a bar grows downwards, or nowhere:\n%s", s)
	}
}
