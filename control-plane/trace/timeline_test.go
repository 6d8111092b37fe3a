package trace_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

func TestTimelineOfAColdRequest(t *testing.T) {
	want := trace.Timeline{
		Label: "on", Total: 1284300 * time.Microsecond, Bound: 1275900 * time.Microsecond,
		Bars: []trace.Bar{
			{Phase: trace.Transfer, Label: "fetch", Start: 12500 * time.Microsecond, End: 934 * ms},
			{Phase: trace.Transfer, Label: "transfer", Start: 934200 * time.Microsecond, End: 935100 * time.Microsecond},
			{Phase: trace.Execute, Start: 938500 * time.Microsecond, End: 1280 * ms},
			{Phase: trace.Schedule, End: 12 * ms},
			{Phase: trace.ColdStart, Start: 12 * ms, End: 611 * ms},
		},
	}
	if d := cmp.Diff(want, cold().Timeline("on")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(trace.Timeline{Label: "none"}, trace.New(traceID, nil).Timeline("none")); d != "" {
		t.Error(d)
	}
}

// off is the same request as cold's when the function fetches its input for itself.
func off() trace.Timeline {
	return trace.Timeline{Label: "Headstart off", Total: 1905 * ms, Bars: []trace.Bar{
		{Phase: trace.Schedule, End: 12 * ms},
		{Phase: trace.ColdStart, Start: 12 * ms, End: 618 * ms},
		{Phase: trace.Transfer, Start: 622 * ms, End: 1560 * ms},
		{Phase: trace.Execute, Start: 1560 * ms, End: 1902 * ms},
	}}
}

func TestTimelines(t *testing.T) {
	for name, rows := range map[string][]trace.Timeline{
		"off-on.svg": {off(), cold().Timeline("Headstart on")},
		"empty.svg":  nil,
		"hostile.svg": {{Label: `</text><script>alert("1")</script>` + "\x00\x1b", Total: 1, Bound: -1, Bars: []trace.Bar{
			{Phase: `"><script>`, Label: "<&\"'>]]>\u202e", Start: -5, End: 1 << 62},
			{Phase: trace.Transfer, Start: 9, End: 3},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := trace.Timelines(&out, rows); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.Bytes())
			wellFormed(t, out.Bytes())
		})
	}
}

func TestTimelinesAreWellFormedAndSteady(t *testing.T) {
	bar := rapid.Custom(func(t *rapid.T) trace.Bar {
		return trace.Bar{
			Phase: trace.Phase(rapid.OneOf(rapid.Just(string(trace.Execute)), rapid.String()).Draw(t, "phase")),
			Label: rapid.String().Draw(t, "label"),
			Start: time.Duration(rapid.Int64().Draw(t, "start")),
			End:   time.Duration(rapid.Int64().Draw(t, "end")),
		}
	})
	row := rapid.Custom(func(t *rapid.T) trace.Timeline {
		return trace.Timeline{
			Label: rapid.String().Draw(t, "label"),
			Total: time.Duration(rapid.Int64().Draw(t, "total")),
			Bound: time.Duration(rapid.Int64().Draw(t, "bound")),
			Bars:  rapid.SliceOfN(bar, 0, 6).Draw(t, "bars"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(row, 0, 3).Draw(t, "rows")
		var first, second bytes.Buffer
		if err := errors.Join(trace.Timelines(&first, rows), trace.Timelines(&second, rows)); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, first.Bytes())
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatal("two runs differ")
		}
	})
}

// wellFormed checks that the SVG is XML of only the elements that a timeline has.
func wellFormed(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, svg []byte) {
	allowed := map[string]bool{"svg": true, "title": true, "style": true, "rect": true, "text": true, "line": true}
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && !allowed[start.Name.Local] {
			t.Fatalf("element %s", start.Name.Local)
		}
	}
}
