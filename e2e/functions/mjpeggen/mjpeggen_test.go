package mjpeggen

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func generate(t *testing.T, size int64, seed uint64) ([]byte, Truth) {
	t.Helper()
	var video bytes.Buffer
	truth, err := Generate(&video, size, seed)
	if err != nil {
		t.Fatal(err)
	}
	return video.Bytes(), truth
}

// split relies on what the generator promises: each frame begins with a comment.
func split(video []byte) [][]byte {
	start := []byte("\xff\xd8\xff\xfe")
	var frames [][]byte
	for _, rest := range bytes.Split(video, start)[1:] {
		frames = append(frames, append(bytes.Clone(start), rest...))
	}
	return frames
}

func TestVideoHasItsSize(t *testing.T) {
	const largestFrame = 60_000
	for _, size := range []int64{1 << 20, 5_000_000} {
		video, truth := generate(t, size, 1)
		if got := int64(len(video)); got != truth.Bytes || got > size || got < size-largestFrame {
			t.Errorf("%d bytes, the truth says %d, asked for %d", got, truth.Bytes, size)
		}
	}
	if _, truth := generate(t, 0, 1); truth.Frames != 1 {
		t.Errorf("%d frames in the shortest video, want 1", truth.Frames)
	}
}

func TestVideoRepeatsWithItsSeed(t *testing.T) {
	first, _ := generate(t, 1<<20, 1)
	again, _ := generate(t, 1<<20, 1)
	other, _ := generate(t, 1<<20, 2)
	if !bytes.Equal(first, again) {
		t.Error("the same seed gives two videos")
	}
	if bytes.Equal(first, other) {
		t.Error("two seeds give the same video")
	}
}

func TestFramesAreDistinctImages(t *testing.T) {
	video, truth := generate(t, 4<<20, 1)
	frames := split(video)
	if len(frames) != truth.Frames || truth.Frames <= scenes {
		t.Fatalf("%d frames, the truth says %d, want more than the %d scenes", len(frames), truth.Frames, scenes)
	}
	seen := map[string]int{}
	for n, frame := range frames {
		if before, ok := seen[string(frame)]; ok {
			t.Errorf("frames %d and %d are equal", before, n)
		}
		seen[string(frame)] = n
		if len(frame) < 30_000 || len(frame) > 60_000 {
			t.Errorf("frame %d has %d bytes, not a camera's 30 to 60 kB", n, len(frame))
		}
		img, err := jpeg.Decode(bytes.NewReader(frame))
		if err != nil {
			t.Fatalf("frame %d: %v", n, err)
		}
		if diff := cmp.Diff(image.Rect(0, 0, width, height), img.Bounds()); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestFlameIsInThePicture(t *testing.T) {
	_, truth := generate(t, 0, 1)
	burning := 0
	for n := range 2 * scenes {
		box, burns := truth.Flame(n)
		if burns == box.Empty() || !box.In(image.Rect(0, 0, width, height)) {
			t.Errorf("frame %d burns: %v, at %v", n, burns, box)
		}
		if burns {
			burning++
		}
	}
	if burning != scenes {
		t.Errorf("%d of %d frames burn, want half", burning, 2*scenes)
	}
}

// A function that looks at one frame in 25 must meet all scenes.
func TestSamplingMeetsAllScenes(t *testing.T) {
	met := map[int]bool{}
	for frame := 0; frame < 25*scenes; frame += 25 {
		met[frame%scenes] = true
	}
	if len(met) != scenes {
		t.Errorf("%d of %d scenes", len(met), scenes)
	}
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestGenerateReportsWriteErrors(t *testing.T) {
	if _, err := Generate(fullDisk{}, 1, 1); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}
