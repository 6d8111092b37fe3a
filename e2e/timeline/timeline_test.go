package timeline_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/timeline"
)

const ms = time.Millisecond

var update = flag.Bool("update", false, "write testdata instead of comparing with it")

// cold is the cold request of the trace's own tests.
func cold(t *testing.T) (tr trace.Trace) {
	t.Helper()
	raw, err := os.ReadFile("../../control-plane/trace/testdata/cold.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &tr); err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTimelineOfAColdRequest(t *testing.T) {
	want := timeline.Timeline{
		Label: "on", Total: 1284300 * time.Microsecond, Bound: 1275900 * time.Microsecond,
		Bars: []timeline.Bar{
			{Phase: timeline.Transfer, Label: "fetch", Start: 12500 * time.Microsecond, End: 934 * ms},
			{
				Phase: timeline.Transfer, Label: "transfer", Start: 934200 * time.Microsecond,
				End: 935100 * time.Microsecond,
			},
			{Phase: timeline.Execute, Start: 938500 * time.Microsecond, End: 1280 * ms},
			{Phase: timeline.Schedule, End: 12 * ms},
			{Phase: timeline.ColdStart, Start: 12 * ms, End: 611 * ms},
		},
	}
	if d := cmp.Diff(want, timeline.Of(cold(t), "on")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(timeline.Timeline{Label: "none"}, timeline.Of(trace.Trace{}, "none")); d != "" {
		t.Error(d)
	}
}

// off is the same request as cold's when the function fetches its input for itself.
func off() timeline.Timeline {
	return timeline.Timeline{Label: "Headstart off", Total: 1905 * ms, Bars: []timeline.Bar{
		{Phase: timeline.Schedule, End: 12 * ms},
		{Phase: timeline.ColdStart, Start: 12 * ms, End: 618 * ms},
		{Phase: timeline.Transfer, Start: 622 * ms, End: 1560 * ms},
		{Phase: timeline.Execute, Start: 1560 * ms, End: 1902 * ms},
	}}
}

func TestTimelines(t *testing.T) {
	for name, rows := range map[string][]timeline.Timeline{
		"off-on.svg": {off(), timeline.Of(cold(t), "Headstart on")},
		"empty.svg":  nil,
		"hostile.svg": {{Label: `</text><script>alert("1")</script>` + "\x00\x1b", Total: 1, Bound: -1,
			Bars: []timeline.Bar{
				{Phase: `"><script>`, Label: "<&\"'>]]>\u202e", Start: -5, End: 1 << 62},
				{Phase: timeline.Transfer, Start: 9, End: 3},
			}}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := timeline.Draw(&out, rows); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), out.String()); d != "" {
				t.Errorf("%s (-want +got):\n%s", file, d)
			}
			wellFormed(t, out.Bytes())
		})
	}
}

func TestTimelinesAreWellFormedAndSteady(t *testing.T) {
	bar := rapid.Custom(func(t *rapid.T) timeline.Bar {
		return timeline.Bar{
			Phase: timeline.Phase(rapid.OneOf(rapid.Just(string(timeline.Execute)), rapid.String()).Draw(t, "phase")),
			Label: rapid.String().Draw(t, "label"),
			Start: time.Duration(rapid.Int64().Draw(t, "start")),
			End:   time.Duration(rapid.Int64().Draw(t, "end")),
		}
	})
	row := rapid.Custom(func(t *rapid.T) timeline.Timeline {
		return timeline.Timeline{
			Label: rapid.String().Draw(t, "label"),
			Total: time.Duration(rapid.Int64().Draw(t, "total")),
			Bound: time.Duration(rapid.Int64().Draw(t, "bound")),
			Bars:  rapid.SliceOfN(bar, 0, 6).Draw(t, "bars"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(row, 0, 3).Draw(t, "rows")
		var first, second bytes.Buffer
		if err := errors.Join(timeline.Draw(&first, rows), timeline.Draw(&second, rows)); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, first.Bytes())
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatal("two runs differ")
		}
	})
}

func TestADrawingThatCannotBeWrittenIsAnError(t *testing.T) {
	if err := timeline.Draw(gone{}, nil); !errors.Is(err, errGone) {
		t.Error(err)
	}
}

var errGone = errors.New("gone")

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errGone }

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
