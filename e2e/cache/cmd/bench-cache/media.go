package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

const (
	mediaRef = "headstart.local/media:1"
	// videoRate is about what a second of the video takes: 25 frames of 1920 x 1080 as JPEG.
	videoRate = 3_100_000
	tessdata  = "/usr/share/tesseract-ocr/5/tessdata"
)

// media makes what the workflows begin with: a page of text as a BMP, and a video whose frames are JPEGs. The files are
// of the benchmark's size, about.
func (b *bench) media(ctx context.Context) (photo, video string, videoSeconds int, err error) {
	dir := filepath.Join(b.Out, "cache", "media")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", 0, err
	}
	photo, video = filepath.Join(dir, "photo.bmp"), filepath.Join(dir, "video.mkv")
	side := 4 * int(math.Sqrt(float64(b.mediaBytes)/3)/4)
	text := "fontfile=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:text='a node never downloads the same bytes twice'"
	page := fmt.Sprintf("color=white:size=%dx%d,drawtext=%s:fontsize=%d:x=(w-tw)/2:y=(h-th)/2", side, side, text, side/40)
	videoSeconds = max(1, int(b.mediaBytes/videoRate/clips)) * clips
	for _, args := range [][]string{
		{"-f", "lavfi", "-i", page, "-frames:v", "1", photo},
		{"-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25", "-t", fmt.Sprint(videoSeconds), "-c:v", "mjpeg", "-q:v", "2", video},
	} {
		c := exec.CommandContext(ctx, "ffmpeg", append([]string{"-nostdin", "-v", "error", "-y"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			return "", "", 0, fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return photo, video, videoSeconds, nil
}

// mediaImage is the image of the function, with Debian's programs and all that these load.
func mediaImage(program string) (archive []byte, err error) {
	files := map[string]ociimage.File{"/media": {Source: program, Mode: 0o755},
		tessdata + "/eng.traineddata": {Source: tessdata + "/eng.traineddata", Mode: 0o644}}
	for _, p := range []string{"/usr/bin/ffmpeg", "/usr/bin/tesseract"} {
		files[p] = ociimage.File{Source: p, Mode: 0o755}
		out, err := exec.Command("ldd", p).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", p, err)
		}
		for word := range strings.FieldsSeq(string(out)) {
			if filepath.IsAbs(word) {
				files[word] = ociimage.File{Source: word, Mode: 0o755}
			}
		}
	}
	var b bytes.Buffer
	err = ociimage.Build(&b, ociimage.Image{Ref: mediaRef, Entrypoint: []string{"/media"}, Files: files})
	return b.Bytes(), err
}
