package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
)

func generate(t *testing.T, size int64) ([]byte, mjpeggen.Truth) {
	t.Helper()
	var video bytes.Buffer
	truth, err := mjpeggen.Generate(&video, size, 7)
	if err != nil {
		t.Fatal(err)
	}
	return video.Bytes(), truth
}

func noStore() (input.Objects, error) { return nil, errors.New("there is no store") }

// ask sends a request to a function that looks at every n-th frame.
func ask(t *testing.T, every int, method, path string, body io.Reader, headers map[string]string, dir string) *http.Response {
	t.Helper()
	req := httptest.NewRequest(method, path, body)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	newHandler(&input.Reader{Dir: dir, Limit: 64 << 20, Objects: noStore}, every).ServeHTTP(w, req)
	return w.Result()
}

func answerOf(t *testing.T, resp *http.Response) Answer {
	t.Helper()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	var answer Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// The generator knows where the fire is; the function must find it, and nothing else.
func TestAnswerIsTheTruth(t *testing.T) {
	video, truth := generate(t, 6<<20)
	for _, every := range []int{1, 25} {
		answer := answerOf(t, ask(t, every, http.MethodPost, "/", bytes.NewReader(video), nil, ""))

		digest := sha256.Sum256(video)
		want := Answer{
			Frames:   truth.Frames,
			Analysed: (truth.Frames + every - 1) / every,
			Bytes:    len(video),
			SHA256:   hex.EncodeToString(digest[:]),
		}
		found := answer.Fire
		answer.Fire = nil
		if diff := cmp.Diff(want, answer); diff != "" {
			t.Errorf("every %d: answer (-want +got):\n%s", every, diff)
		}
		checkFire(t, found, truth, every)
	}
}

func checkFire(t *testing.T, found []FrameOnFire, truth mjpeggen.Truth, every int) {
	t.Helper()
	byFrame := map[int]FrameOnFire{}
	for _, f := range found {
		byFrame[f.Frame] = f
	}
	onFire := 0
	for frame := 0; frame < truth.Frames; frame += every {
		flame, burns := truth.Flame(frame)
		got, says := byFrame[frame]
		if says != burns {
			t.Errorf("frame %d burns: %v, the answer says %v", frame, burns, says)
			continue
		}
		if !burns {
			continue
		}
		onFire++
		if len(got.Regions) != 1 {
			t.Errorf("frame %d: %d regions, want 1", frame, len(got.Regions))
			continue
		}
		r := got.Regions[0]
		box := image.Rect(r.X, r.Y, r.X+r.W, r.Y+r.H)
		// JPEG blurs edges by up to half a block.
		const blur = 4
		if !box.In(flame.Inset(-blur)) || !flame.Inset(blur).In(box) {
			t.Errorf("frame %d: fire at %v, found at %v", frame, flame, box)
		}
	}
	if onFire == 0 || onFire != len(found) {
		t.Errorf("%d frames burn, the answer has %d", onFire, len(found))
	}
}

func TestAnswerSaysWhereTheInputCameFrom(t *testing.T) {
	video, _ := generate(t, 1)
	dir := t.TempDir()
	path := filepath.Join(dir, "request")
	if err := os.WriteFile(path, video, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		origin  string
		body    io.Reader
		headers map[string]string
	}{
		{"body", bytes.NewReader(video), nil},
		{"file", nil, map[string]string{input.HeaderFile: path}},
	} {
		t.Run(c.origin, func(t *testing.T) {
			resp := ask(t, 25, http.MethodPost, "/", c.body, c.headers, dir)
			if got := answerOf(t, resp).Bytes; got != len(video) {
				t.Errorf("%d bytes, want %d", got, len(video))
			}
			want := regexp.MustCompile(`^input;dur=[0-9]+\.[0-9]{3};desc="` + c.origin + `", exec;dur=[0-9]+\.[0-9]{3}$`)
			if got := resp.Header.Get("Server-Timing"); !want.MatchString(got) {
				t.Errorf("Server-Timing %q does not match %s", got, want)
			}
		})
	}
}

// hugeHeader is a JPEG of a few bytes that claims 65535 by 65535 pixels.
const hugeHeader = "\xff\xd8\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x01\x11\x00\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00pixels\xff\xd9"

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		body    string
		headers map[string]string
		status  int
		want    string
	}{
		{"no input", "", nil, http.StatusBadRequest, "no input"},
		{"no video", "hello", nil, http.StatusUnprocessableEntity, "no JPEG frame"},
		{"only a huge frame", hugeHeader, nil, http.StatusUnprocessableEntity, "no JPEG frame"},
		{"file elsewhere", "", map[string]string{input.HeaderFile: "/etc/passwd"}, http.StatusBadRequest, "does not name a file beneath"},
		{"store not configured", "", map[string]string{input.HeaderBucket: "b", input.HeaderKey: "k"}, http.StatusInternalServerError, "internal error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask(t, 25, http.MethodPost, "/", strings.NewReader(c.body), c.headers, "/headstart/input")
			var problem struct{ Error string }
			if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || !strings.Contains(problem.Error, c.want) {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, problem.Error, c.status, c.want)
			}
		})
	}
}

func TestUnreadableFramesAreCounted(t *testing.T) {
	video, truth := generate(t, 1)
	answer, err := analyse(append([]byte(hugeHeader), video...), 1)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Frames != truth.Frames+1 || answer.Unreadable != 1 || answer.Analysed != truth.Frames {
		t.Errorf("answer %+v for one unreadable frame and %d good ones", answer, truth.Frames)
	}
}

func TestGreyVideoHasNoFire(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range img.Pix {
		img.Pix[i] = color.Gray{Y: uint8(i)}.Y
	}
	var video bytes.Buffer
	if err := jpeg.Encode(&video, img, nil); err != nil {
		t.Fatal(err)
	}
	answer, err := analyse(video.Bytes(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Analysed != 1 || len(answer.Fire) != 0 {
		t.Errorf("answer %+v for a grey frame", answer)
	}
}

func TestHealth(t *testing.T) {
	if resp := ask(t, 25, http.MethodGet, "/healthz", nil, nil, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
}
