// Package mjpeggen generates videos for tests and demonstrations: Motion JPEG of a moving
// scene that is on fire in some frames, and the truth about where.
package mjpeggen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"io"
)

const (
	// scenes is how many different images a video cycles through. Encoding is what takes
	// time; a function that samples one frame in 25 still meets all of them, since the
	// numbers have no common factor.
	scenes = 48
	// quality makes frames of 30 to 60 kB, as cameras at this resolution do.
	quality = 80
)

// Truth is what a generated video shows.
type Truth struct {
	Frames int
	// Bytes is the video's length.
	Bytes  int64
	flames []image.Rectangle // by scene; empty: none
}

// Flame returns the bounding box of the flame in a frame, numbered from 0, if it has one.
func (t Truth) Flame(frame int) (image.Rectangle, bool) {
	box := t.flames[frame%len(t.flames)]
	return box, !box.Empty()
}

// Generate writes a video of at most size bytes, and less by at most a frame, but of at
// least one frame. The same size and seed give the same video with the same Go release.
// No two frames are equal: each has a comment with its number.
func Generate(w io.Writer, size int64, seed uint64) (Truth, error) {
	var truth Truth
	var images [][]byte
	for n := range scenes {
		img, flame := draw(n, seed)
		var encoded bytes.Buffer
		if err := jpeg.Encode(&encoded, img, &jpeg.Options{Quality: quality}); err != nil {
			return Truth{}, fmt.Errorf("encoding scene %d: %w", n, err)
		}
		images = append(images, encoded.Bytes())
		truth.flames = append(truth.flames, flame)
	}
	var frame []byte
	for {
		frame = numbered(frame[:0], images[truth.Frames%scenes], truth.Frames)
		if truth.Frames > 0 && truth.Bytes+int64(len(frame)) > size {
			return truth, nil
		}
		if _, err := w.Write(frame); err != nil {
			return Truth{}, fmt.Errorf("writing frame %d: %w", truth.Frames, err)
		}
		truth.Frames++
		truth.Bytes += int64(len(frame))
	}
}

// numbered appends a JPEG image with a comment segment after its start marker.
func numbered(frame, image []byte, number int) []byte {
	const startMarker, lengthBytes = 2, 2
	comment := fmt.Sprintf("frame %010d", number)
	frame = append(frame, image[:startMarker]...)
	frame = append(frame, 0xFF, 0xFE) // COM
	frame = binary.BigEndian.AppendUint16(frame, uint16(lengthBytes+len(comment)))
	frame = append(frame, comment...)
	return append(frame, image[startMarker:]...)
}
