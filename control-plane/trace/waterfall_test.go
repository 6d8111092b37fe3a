package trace_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func waterfall(t interface{ Fatal(...any) }, tr trace.Trace, o trace.WaterfallOptions) []byte {
	var out bytes.Buffer
	if err := trace.Waterfall(&out, tr, o); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWaterfall(t *testing.T) {
	failed := cold()
	failed.Dropped = 3
	for i, s := range failed.Spans {
		switch s.Name {
		case "fetch":
			failed.Spans[i].Status, failed.Spans[i].Message = trace.Error, "NoSuchKey: videos/cam1.mjpeg is not in the store"
		case "deliver":
			failed.Spans[i].Attributes = map[string]any{string(tracing.Degraded): "InputMissing"}
		}
	}
	exited := trace.New(traceID, []trace.Span{
		span("01", "", tracing.ServiceGateway, tracing.Gateway, 0, 90),
		span("02", "01", tracing.ServiceNode, tracing.Activation, 1, 89, "headstart.request", requestID, "faas.coldstart", true),
		span("03", "02", tracing.ServiceNode, tracing.RuntimeStart, 20, 80, "headstart.instance", "fire-1"),
	})
	for i := range exited.Spans[1:] {
		exited.Spans[i+1].Status, exited.Spans[i+1].Message = trace.Error, "FunctionExited"
	}
	exited = exited.Explain(func(instance string) []string {
		return map[string][]string{"fire-1": {"Traceback (most recent call last):", "KeyError: 'DB\x1b[2J'", strings.Repeat("読", 50) + "the cause"}}[instance]
	})
	hostile := trace.New("\x1b[31m", []trace.Span{
		span("01", "", "\x1b]0;owned\a", "line\nend \x1b[2J", 0, 10),
		span("02", "01", "日本語のサービス", "映像を読む", 2, 9),
		span("03", "02", "\u202eevil", "e\u0301\u200b", 3, 1e12),
		span("04", "01", "", strings.Repeat("long", 100), -5, 4),
	})
	for name, tc := range map[string]struct {
		trace trace.Trace
		o     trace.WaterfallOptions
	}{
		"cold-100":        {cold(), trace.WaterfallOptions{Width: 100}},
		"cold-60":         {cold(), trace.WaterfallOptions{Width: 12}},
		"failed-80":       {failed, trace.WaterfallOptions{Width: 80}},
		"exited-80":       {exited, trace.WaterfallOptions{Width: 80}},
		"failed-80-color": {failed, trace.WaterfallOptions{Width: 80, Color: true}},
		"hostile-80":      {hostile, trace.WaterfallOptions{Width: 80}},
		"empty":           {trace.New(traceID, nil), trace.WaterfallOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".txt", waterfall(t, tc.trace, tc.o))
		})
	}
}

// checkWaterfall holds for any trace: one line per span after the two of the header,
// no line wider than asked, and nothing that a terminal obeys.
func checkWaterfall(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, tr trace.Trace, o trace.WaterfallOptions) {
	lines := strings.Split(strings.TrimSuffix(string(waterfall(t, tr, o)), "\n"), "\n")
	if len(tr.Spans) > 0 && len(lines) < 2+len(tr.Spans) {
		t.Fatalf("%d lines for %d spans", len(lines), len(tr.Spans))
	}
	for i, line := range lines {
		if n := trace.Columns(line); n > max(o.Width, trace.WidthMin) {
			t.Fatalf("line %d takes %d columns of %d: %q", i, n, o.Width, line)
		}
		if strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Fatalf("line %d is not printable: %q", i, line)
		}
	}
}

func TestWaterfallFitsTheTerminalWhateverTheSpansSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkWaterfall(t, anyTrace().Draw(t, "trace"), trace.WaterfallOptions{Width: rapid.IntRange(0, 200).Draw(t, "width")})
	})
}

func TestColorChangesNothingElse(t *testing.T) {
	escapes := regexp.MustCompile("\x1b\\[[0-9]+m")
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		plain := waterfall(t, tr, trace.WaterfallOptions{Width: 100})
		colored := waterfall(t, tr, trace.WaterfallOptions{Width: 100, Color: true})
		trailing := regexp.MustCompile(` +\n`)
		if got := trailing.ReplaceAll(escapes.ReplaceAll(colored, nil), []byte("\n")); !bytes.Equal(got, trailing.ReplaceAll(plain, []byte("\n"))) {
			t.Fatalf("plain:\n%s\ncolored, colors taken out:\n%s", plain, got)
		}
	})
}

func TestWaterfallSaysWhenTheTerminalIsGone(t *testing.T) {
	if err := trace.Waterfall(gone{}, cold(), trace.WaterfallOptions{}); !errors.Is(err, errGone) {
		t.Error(err)
	}
}

var errGone = errors.New("gone")

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errGone }
