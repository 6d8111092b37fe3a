package functionapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const content = "0123456789"

func TestAnInputIsRead(t *testing.T) {
	r := newRig(t, nil)
	r.begin("fire-1", id(1), whole(content), 0)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		resp := r.ask("fire-1", method, "/input/"+id(1), nil)
		want := http.Header{"Accept-Ranges": {"bytes"}, "Content-Length": {"10"}, "Content-Type": {"video/x-motion-jpeg"}, "Etag": {`"v1"`}}
		for name := range want {
			if got := resp.Header.Get(name); got != want.Get(name) {
				t.Errorf("%s: %s is %q", method, name, got)
			}
		}
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
		if got := body(t, resp); (got == content) != (method == http.MethodGet) {
			t.Errorf("%s: %q", method, got)
		}
	}
}

// Only the sandbox that works on a request can read its input; another one learns nothing.
func TestAnotherSandboxCannotReadIt(t *testing.T) {
	r := newRig(t, nil)
	end := r.begin("fire-1", id(1), whole(content), 0)
	r.begin("fire-2", id(2), whole("other"), 0)
	for _, other := range []string{"fire-2", "web-1"} {
		for _, path := range []string{id(1), strings.ToUpper(id(1)), id(3), "", "..", "../" + id(1), id(1) + "/", "fire-1/" + id(1), "%2e%2e/x", "?" + id(1)} {
			wantProblem(t, r.get(other, "/input/"+path, "x-headstart-request", id(1), "x-headstart-instance", "fire-1"), http.StatusNotFound, "RequestUnknown", "")
		}
	}
	if got := body(t, r.get("fire-1", "/input/"+id(1))); got != content {
		t.Errorf("%q", got)
	}
	end()
	wantProblem(t, r.get("fire-1", "/input/"+id(1)), http.StatusNotFound, "RequestUnknown", "")
}

// A request's inputs with names are read by these, besides the one without.
func TestReadingANamedInput(t *testing.T) {
	r := newRig(t, nil)
	end := r.Begin("fire-1", sandboxes.Delivery{
		Request: id(1), Inputs: map[string]sandboxes.Input{"": whole("video"), "mask": whole("mask")},
	})
	for path, want := range map[string]string{"": "video", "/mask": "mask"} {
		if got := body(t, r.get("fire-1", "/input/"+id(1)+path)); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/subtitles", "/mask/", "/../mask", "/%6dask"} {
		wantProblem(t, r.get("fire-1", "/input/"+id(1)+path), http.StatusNotFound, "NoInput", "")
	}
	wantProblem(t, r.get("web-1", "/input/"+id(1)+"/mask"), http.StatusNotFound, "RequestUnknown", "")
	end()
	wantProblem(t, r.get("fire-1", "/input/"+id(1)+"/mask"), http.StatusNotFound, "RequestUnknown", "")
}

func TestReadsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	r.begin("fire-1", id(1), nil, 0)
	r.begin("fire-1", id(2), whole(content), 0)
	wantProblem(t, r.get("fire-1", "/input/"+id(1)), http.StatusNotFound, "NoInput", "")
	wantProblem(t, r.get("fire-1", "/"), http.StatusNotFound, "EndpointUnknown", "")
	wantProblem(t, r.get("fire-1", "/inputs/"+id(2)), http.StatusNotFound, "EndpointUnknown", "")
	resp := r.ask("fire-1", http.MethodDelete, "/input/"+id(2), nil)
	if allow := resp.Header.Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow: %q", allow)
	}
	wantProblem(t, resp, http.StatusMethodNotAllowed, "MethodNotAllowed", "")
	resp = r.get("fire-1", "/input/"+id(2), "Range", "bytes=10-")
	if got := resp.Header.Get("Content-Range"); got != "bytes */10" {
		t.Errorf("Content-Range: %q", got)
	}
	wantProblem(t, resp, http.StatusRequestedRangeNotSatisfiable, "RangeNotSatisfiable", "header range")
	big := r.get("fire-1", "/input/"+id(2), "x", strings.Repeat("x", 64<<10))
	if big.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(big.Status)
	}
}

// What is not a single range of bytes is ignored (RFC 9110, section 14.2), as is one of
// another version.
func TestRangesThatAreIgnored(t *testing.T) {
	r := newRig(t, nil)
	r.begin("fire-1", id(1), whole(content), 0)
	for _, headers := range [][]string{
		{"Range", "bytes=0-1,3-4"}, {"Range", "bytes=5-3"}, {"Range", "bytes=a-b"}, {"Range", "bytes"}, {"Range", "bytes=-"}, {"Range", "bytes=+1-2"},
		{"Range", "lines=0-1"}, {"Range", "bytes=0-1", "If-Range", `"v2"`}, {"Range", "bytes=0-1", "If-Range", "Sat, 21 Nov 2026 00:00:00 GMT"},
	} {
		resp := r.get("fire-1", "/input/"+id(1), headers...)
		if got := body(t, resp); resp.StatusCode != http.StatusOK || got != content {
			t.Errorf("%q: %s, %q", headers, resp.Status, got)
		}
	}
	resp := r.get("fire-1", "/input/"+id(1), "Range", "bytes=2-3", "If-Range", `"v1"`)
	if got := body(t, resp); resp.StatusCode != http.StatusPartialContent || got != "23" {
		t.Errorf("its version: %s, %q", resp.Status, got)
	}
	head := r.ask("fire-1", http.MethodHead, "/input/"+id(1), nil, "Range", "bytes=2-3")
	if head.StatusCode != http.StatusOK || head.ContentLength != 10 {
		t.Errorf("HEAD: %s, %d", head.Status, head.ContentLength)
	}
}

// Single ranges are what the standard library makes of them.
func TestRangesAreThoseOfTheStandard(t *testing.T) {
	r := newRig(t, nil)
	client := r.client("fire-1")
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		data := strings.Repeat(content, 4)[:size]
		first, length := rapid.IntRange(0, 50).Draw(t, "first"), rapid.IntRange(0, 50).Draw(t, "length")
		header := rapid.SampledFrom([]string{
			"bytes=" + strconv.Itoa(first) + "-" + strconv.Itoa(first+length), "bytes=" + strconv.Itoa(first) + "-", "bytes=-" + strconv.Itoa(first+1), // with 0 the library says nonsense

			"bytes=" + strconv.Itoa(first) + "-9223372036854775807", "bytes= " + strconv.Itoa(first) + "- ",
		}).Draw(t, "range")
		want := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Range", header)
		http.ServeContent(want, req, "", time.Time{}, strings.NewReader(data))

		in := whole(data)
		defer r.begin("fire-1", id(1), in, 0)()
		got, err := ranged(client, header)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		b, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got.StatusCode != want.Code || got.Header.Get("Content-Range") != want.Header().Get("Content-Range") {
			t.Fatalf("%d bytes, %s: %d %v, want %d %v", size, header, got.StatusCode, got.Header, want.Code, want.Header())
		}
		if got.StatusCode < 400 && !bytes.Equal(b, want.Body.Bytes()) {
			t.Fatalf("%q, want %q", b, want.Body)
		}
	})
}

// An input that is still arriving is read as it comes, and waits for what is not there.
func TestReadingWhileItArrives(t *testing.T) {
	r := newRig(t, nil)
	for name, in := range map[string]*input{"of known size": sized(10), "of unknown size": unsized()} {
		t.Run(name, func(t *testing.T) {
			end := r.begin("fire-1", id(1), in, 0)
			defer end()
			in.come("01234")
			resp := r.get("fire-1", "/input/"+id(1))
			if want := in.size; resp.StatusCode != http.StatusOK || resp.ContentLength != want {
				t.Errorf("%s, length %d, want %d", resp.Status, resp.ContentLength, want)
			}
			if resp.Header.Get("Content-Type") != "application/octet-stream" || resp.Header.Get("ETag") != "" {
				t.Error(resp.Header)
			}
			// What is there comes before the rest is.
			half := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, half); err != nil || string(half) != "01234" {
				t.Errorf("%q, %v", half, err)
			}
			head := r.ask("fire-1", http.MethodHead, "/input/"+id(1), nil)
			if head.StatusCode != http.StatusOK || head.ContentLength != in.size {
				t.Errorf("HEAD: %s, %d", head.Status, head.ContentLength)
			}
			early := r.get("fire-1", "/input/"+id(1), "Range", "bytes=1-3")
			if got := body(t, early); got != "123" {
				t.Errorf("a range that is there: %s, %q", early.Status, got)
			}
			var waiting sync.WaitGroup
			for header, want := range map[string]string{"bytes=3-6": "3456", "bytes=7-": "789", "bytes=-2": "89", "bytes=5-50": "56789", "bytes=20-30": ""} {
				client := r.client("fire-1")
				waiting.Go(func() {
					resp, err := ranged(client, header)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					if want == "" && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && resp.Header.Get("Content-Range") == "bytes */10" {
						return
					}
					if string(b) != want || err != nil || resp.StatusCode != http.StatusPartialContent {
						t.Errorf("%s: %s %q, %q, %v", header, resp.Status, resp.Header.Get("Content-Range"), b, err)
					}
				})
			}
			in.come("56789")
			in.end(nil)
			waiting.Wait()
			if got := body(t, resp); got != "56789" {
				t.Errorf("then %q", got)
			}
		})
	}
}

func ranged(c *http.Client, header string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, "http://headstart/input/"+id(1), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Range", header)
	return c.Do(req)
}

// An input that breaks off, and one whose request is over, are never taken for whole.
func TestAReadThatCannotEnd(t *testing.T) {
	r := newRig(t, nil)
	for name, make := range map[string]func() *input{"of known size": func() *input { return sized(10) }, "of unknown size": unsized} {
		for how, end := range map[string]func(in *input, over func()){
			"it breaks off":       func(in *input, _ func()) { in.end(errors.New("the client went away")) },
			"the request is over": func(_ *input, over func()) { over() },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				in := make()
				over := r.begin("fire-1", id(1), in, 0)
				defer over()
				in.come("01234")
				resp := r.get("fire-1", "/input/"+id(1))
				half := [5]byte{}
				if _, err := io.ReadFull(resp.Body, half[:]); err != nil {
					t.Fatal(err)
				}
				end(in, over)
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("it ends as if it were whole")
				}
			})
		}
	}
}

// A reader that goes away holds nothing up.
func TestAReaderThatGoes(t *testing.T) {
	r := newRig(t, nil)
	in := sized(10)
	r.begin("fire-1", id(1), in, 0)
	in.come("0")
	resp := r.get("fire-1", "/input/"+id(1))
	resp.Body.Close()
	r.stop() // waits for its end
}

// client2 is a program in the sandbox that speaks HTTP/2.
func (r *rig) client2(id string) *http.Client {
	r.t.Helper()
	c := r.client(id)
	transport := c.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return c
}

// counted is an input that counts its readers and what they have read.
type counted struct {
	*input
	open, read, room atomic.Int64 // room is that of the last Read
}

func (c *counted) NewReader(ctx context.Context) (io.ReadCloser, error) {
	from, err := c.input.NewReader(ctx)
	c.open.Add(1)
	return &countedReader{ReadCloser: from, of: c}, err
}

type countedReader struct {
	io.ReadCloser
	of *counted
}

func (r *countedReader) Read(p []byte) (int, error) {
	r.of.room.Store(int64(len(p)))
	n, err := r.ReadCloser.Read(p)
	r.of.read.Add(int64(n))
	return n, err
}

func (r *countedReader) Close() error {
	r.of.open.Add(-1)
	return r.ReadCloser.Close()
}

// until waits for something that is to come soon.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !is(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("not in time: " + what)
		}
	}
}

// A read that the function has stopped to take ends with its request: nothing of the input
// stays in the buffer for it.
func TestAReadThatNobodyTakes(t *testing.T) {
	r := newRig(t, nil)
	for name, client := range map[string]*http.Client{"HTTP/1.1": r.client("fire-1"), "HTTP/2": r.client2("fire-1")} {
		t.Run(name, func(t *testing.T) {
			in := &counted{input: whole(strings.Repeat(content, 4<<20))} // more than sockets and windows hold
			over := r.begin("fire-1", id(1), in, 0)
			defer over()
			resp, err := client.Get("http://headstart/input/" + id(1))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			until(t, "the answer begins", func() bool { return in.read.Load() > 64<<10 })
			over()
			until(t, "the read ends", func() bool { return in.open.Load() == 0 })
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("it ends as if it were whole")
			}
		})
	}
}

// However many connections and streams a sandbox opens, it has so many reads at a time.
func TestTooManyReads(t *testing.T) {
	r := newRig(t, nil)
	in := &counted{input: unsized()}
	in.come("0")
	r.begin("fire-1", id(1), in, 0)
	client := r.client2("fire-1")
	get := func() *http.Response {
		t.Helper()
		resp, err := client.Get("http://headstart/input/" + id(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	var first *http.Response
	for range functionapi.ReadsLimit {
		if first = get(); first.StatusCode != http.StatusOK {
			t.Fatal(first.Status)
		}
	}
	wantProblem(t, get(), http.StatusServiceUnavailable, "TooManyReads", "")
	r.begin("fire-2", id(2), whole(content), 0)
	if got := body(t, r.get("fire-2", "/input/"+id(2))); got != content {
		t.Errorf("another sandbox gets %q", got)
	}
	first.Body.Close()
	until(t, "one may read again", func() bool { return get().StatusCode == http.StatusOK })
}

// A namespace's sandboxes together have so many reads at a time, and few of these have much of the node's
// memory: what is read and not taken is not to cost others theirs.
func TestAttackReadsOfANamespaceLeaveOthersTheirs(t *testing.T) {
	r := newRig(t, nil)
	clients := map[string]*http.Client{}
	n := 0
	get := func(sandbox string) (room int64, resp *http.Response) {
		t.Helper()
		n++
		if clients[sandbox] == nil {
			clients[sandbox] = r.client2(sandbox)
		}
		in := &counted{input: unsized()}
		in.come("0")
		r.begin(sandbox, id(n), in, 0)
		resp, err := clients[sandbox].Get("http://headstart/input/" + id(n))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return in.room.Load(), resp
	}
	served := func(sandbox string, want int64) {
		t.Helper()
		if room, resp := get(sandbox); resp.StatusCode != http.StatusOK || room != want {
			t.Fatalf("read %d of %s has a room of %d bytes, want %d: %s", n, sandbox, room, want, resp.Status)
		}
	}
	for range fair.Most(functionapi.RoomsLarge) {
		served("fire-1", functionapi.RoomLarge)
	}
	for i := range fair.Most(functionapi.ReadsOfNode) - fair.Most(functionapi.RoomsLarge) {
		served([]string{"fire-1", "fire-2"}[i%2], functionapi.RoomSmall)
	}
	_, full := get("fire-2")
	wantProblem(t, full, http.StatusServiceUnavailable, "TooManyReads", "")
	served("web-1", functionapi.RoomLarge)
}
