package mjpeg

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Parts of JPEG images, not more of them than a splitter needs to see.
const (
	soi  = "\xff\xd8"
	eoi  = "\xff\xd9"
	app  = "\xff\xe0\x00\x04hi"
	scan = "\xff\xda\x00\x03c"
	// whole is the least that counts as a frame.
	whole = soi + scan + "pixels" + eoi
)

func split(data string) []string {
	var frames []string
	for frame := range Frames([]byte(data)) {
		frames = append(frames, string(frame))
	}
	return frames
}

func TestFrames(t *testing.T) {
	thumbnail := "\xff\xe1\x00" + string(rune(2+len(whole))) + whole
	for _, c := range []struct {
		name string
		data string
		want []string
	}{
		{"nothing", "", nil},
		{"no JPEG", "hello", nil},
		{"one", whole, []string{whole}},
		{"two", whole + whole, []string{whole, whole}},
		{"between boundaries", "--a\r\n\r\n" + whole + "\r\n--a\r\n\r\n" + whole + "--", []string{whole, whole}},
		{"segments before the scan", soi + app + app + scan + "p" + eoi, []string{soi + app + app + scan + "p" + eoi}},
		{"stuffing and restarts in the scan", soi + scan + "\xff\x00p\xff\xd0q\xff\xd7" + eoi,
			[]string{soi + scan + "\xff\x00p\xff\xd0q\xff\xd7" + eoi}},
		{"several scans", soi + scan + "p" + app + scan + "q" + eoi, []string{soi + scan + "p" + app + scan + "q" + eoi}},
		{"fill bytes before a marker", soi + "\xff\xff" + app + scan + "p\xff\xff" + eoi,
			[]string{soi + "\xff\xff" + app + scan + "p\xff\xff" + eoi}},
		{"a thumbnail inside", soi + thumbnail + scan + "p" + eoi, []string{soi + thumbnail + scan + "p" + eoi}},
		{"no pixels", soi + app + eoi + whole, []string{whole}},
		{"cut off in the scan", whole + soi + scan + "pix", []string{whole}},
		{"cut off in a segment", whole + soi + "\xff\xe0\xff\xffhi", []string{whole}},
		{"cut off in a length", whole + soi + "\xff\xe0\x00", []string{whole}},
		{"cut off after a marker", whole + soi + "\xff", []string{whole}},
		{"a frame broken off by the next", soi + scan + "pix" + whole, []string{whole}},
		{"a header broken off by the next", soi + app + whole, []string{whole}},
		{"bytes that are no marker", soi + app + "junk" + scan + "p" + eoi + whole, []string{whole}},
		{"a length below its own size", soi + "\xff\xe0\x00\x00" + scan + "p" + eoi, []string{soi + "\xff\xe0\x00\x00" + scan + "p" + eoi}},
		{"only starts", strings.Repeat(soi, 10), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, split(c.data)); diff != "" {
				t.Errorf("frames (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFramesEndsWhenAskedTo(t *testing.T) {
	for range Frames([]byte(whole + whole)) {
		break
	}
}

func TestFramesSplitsWhatWasJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entropy := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string {
			return strings.ReplaceAll(string(b), "\xff", "\xff\x00")
		})
		// Without 0xFF, no junk can begin a frame.
		junk := rapid.Map(rapid.SliceOf(rapid.ByteMax(0xFE)), func(b []byte) string { return string(b) })
		var want []string
		stream := junk.Draw(t, "junk")
		for range rapid.IntRange(0, 10).Draw(t, "frames") {
			frame := soi + app + scan + entropy.Draw(t, "entropy") + eoi
			want = append(want, frame)
			stream += frame + junk.Draw(t, "junk")
		}
		if diff := cmp.Diff(want, split(stream)); diff != "" {
			t.Fatalf("frames (-want +got):\n%s", diff)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte(whole + "junk" + whole))
	f.Add([]byte(soi + app + soi + "\xff\xff\xff\xda\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0 // in the data, after the last frame
		for frame := range Frames(data) {
			if !bytes.HasPrefix(frame, frameStart) || !bytes.HasSuffix(frame, []byte(eoi)) {
				t.Fatalf("%x is no frame", frame)
			}
			next := bytes.Index(data[at:], frame)
			if next < 0 {
				t.Fatalf("%x does not come after byte %d", frame, at)
			}
			at += next + len(frame)
			if again := slices.Collect(Frames(frame)); len(again) != 1 || len(again[0]) != len(frame) {
				t.Fatalf("%x alone is %d frames", frame, len(again))
			}
		}
	})
}
