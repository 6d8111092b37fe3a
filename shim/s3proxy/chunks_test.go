package s3proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// dechunk decodes aws-chunked without signatures, and nothing else.
func dechunk(s string) (payload []byte, trailer []string, err error) {
	for {
		line, rest, ended := strings.Cut(s, lineEnd)
		size, err := strconv.ParseUint(line, 16, 31)
		if !ended || err != nil {
			return nil, nil, fmt.Errorf("%.40q is not the head of a chunk", s)
		}
		if size == 0 {
			s = rest
			break
		}
		if size > chunkSize || uint64(len(rest)) < size+2 || rest[size:size+2] != lineEnd {
			return nil, nil, fmt.Errorf("a chunk of %d bytes, with %d left", size, len(rest))
		}
		payload, s = append(payload, rest[:size]...), rest[size+2:]
	}
	for {
		line, rest, ended := strings.Cut(s, lineEnd)
		switch {
		case !ended, line == "" && rest != "":
			return nil, nil, fmt.Errorf("%.40q is no trailer", s)
		case line == "":
			return payload, trailer, nil
		}
		trailer, s = append(trailer, line), rest
	}
}

// chunkedBody is a payload as a client sends it, in chunks of these sizes.
func chunkedBody(payload []byte, sizes []int, trailer string) string {
	var b strings.Builder
	for i := 0; len(payload) > 0; i++ {
		n := len(payload)
		if i < len(sizes) {
			n = min(n, sizes[i])
		}
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, payload[:n])
		payload = payload[n:]
	}
	return b.String() + "0\r\n" + trailer + "\r\n\r\n"
}

// chunkedHeader says that a body is such, of so many bytes of a payload.
func chunkedHeader(size int, trailer string) http.Header {
	return http.Header{"X-Amz-Content-Sha256": {trailing}, "X-Amz-Trailer": {trailer},
		"Content-Encoding": {"aws-chunked"}, "X-Amz-Decoded-Content-Length": {strconv.Itoa(size)}}
}

// received is a request whose payload comes in chunks, as it is passed on.
func received(t interface{ Fatal(...any) }, body string, size int, trailer string) (*chunks, *payload) {
	sb := &sandbox{id: "a", note: note{Key: newKey()}}
	r := incoming(http.MethodPut, "/data/k", body, chunkedHeader(size, trailer))
	sb.sign(t, r)
	signed, err := sigv4.Verify(r, time.Now(), func(id string) (string, string, bool) {
		secret, token, known, _ := sb.secret(id, time.Now())
		return secret, token, known
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &payload{Payload: signed.Body(r.Body)}
	return newChunks(&request{Request: r, signed: signed}, p), p
}

// checksums are trailers, with a value of each.
var checksums = map[string]string{"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-crc32c": "sOO8/Q==",
	"x-amz-checksum-crc64nvme": "AAAAAAAAAAA=", "x-amz-checksum-sha1": "2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
	"x-amz-checksum-sha256": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}

// sizes are of payloads, most of them near the ends of chunks.
func drawSize(t *rapid.T) int {
	near := rapid.SampledFrom([]int{0, chunkSize, 2 * chunkSize, 3 * chunkSize}).Draw(t, "near")
	return max(0, near+rapid.OneOf(rapid.IntRange(-2, 2), rapid.IntRange(0, chunkSize)).Draw(t, "more"))
}

// readAll reads with buffers of sizes that are drawn, and fails if a Read after an error is something else.
func readAll(t *rapid.T, from io.Reader) ([]byte, error) {
	size := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 2*chunkSize)).Draw(t, "buffer")
	var all []byte
	for {
		b := make([]byte, size)
		n, err := from.Read(b)
		if all = append(all, b[:n]...); err == nil {
			continue
		}
		if more, again := from.Read(b); more > 0 || again != err {
			t.Fatalf("after %v comes %d bytes, %v", err, more, again)
		}
		if err == io.EOF {
			err = nil
		}
		return all, err
	}
}

// Whatever comes, and however it is read, the store gets as many bytes as were announced, and by them the payload and
// its trailer.
func TestChunks(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), chunkSize)
	rapid.Check(t, func(t *rapid.T) {
		payload := content[:drawSize(t)]
		name := rapid.SampledFrom([]string{"x-amz-checksum-crc32", "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme",
			"x-amz-checksum-sha1", "x-amz-checksum-sha256"}).Draw(t, "trailer")
		sent := rapid.SampledFrom([]string{name, strings.ToUpper(name)}).Draw(t, "as it is sent")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 2*chunkSize), 0, 5).Draw(t, "chunks")
		c, _ := received(t, chunkedBody(payload, sizes, sent+": "+checksums[name]), len(payload), sent)
		if c == nil {
			t.Fatal("the trailer is not passed on")
		}
		got, err := readAll(t, c)
		if err != nil || int64(len(got)) != c.length() {
			t.Fatalf("%d bytes, %v; announced are %d", len(got), err, c.length())
		}
		decoded, trailer, err := dechunk(string(got))
		if err != nil || !bytes.Equal(decoded, payload) {
			t.Fatalf("it decodes to %d bytes, %v", len(decoded), err)
		}
		if len(trailer) != 1 || trailer[0] != name+":"+checksums[name] {
			t.Fatalf("it has the trailers %q", trailer)
		}
	})
}

// A body that ends too early, or is not what it says, ends with an error, and nobody can take what has come for whole.
func TestChunksEndWithTheBodysError(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), chunkSize)
	const name = "x-amz-checksum-crc32"
	rapid.Check(t, func(t *rapid.T) {
		payload := content[:drawSize(t)]
		body := chunkedBody(payload, nil, name+":"+checksums[name])
		end := len(body) - len(name+":"+checksums[name]+"\r\n\r\n")
		cut := rapid.IntRange(0, end).Draw(t, "cut")
		body = body[:cut] + rapid.SampledFrom([]string{"", "x", "\r\n", "0\r\n\r\n", "1\r\nx\r\n"}).Draw(t, "then")
		c, _ := received(t, body, len(payload), name)
		got, err := readAll(t, c)
		if _, is := errors.AsType[*sigv4.Error](err); !is {
			t.Fatalf("the error is %v", err)
		}
		if int64(len(got)) >= c.length() {
			t.Fatalf("%d bytes come of %d", len(got), c.length())
		}
	})
}

// A trailer whose value cannot be a checksum of its kind is the client's fault.
func TestChunksWithATrailerThatIsNoChecksum(t *testing.T) {
	for name, value := range map[string]string{
		"x-amz-checksum-crc32": "", "x-amz-checksum-crc32c": "AAAA", "x-amz-checksum-sha1": "AAAAAA==",
		"x-amz-checksum-sha256": strings.Repeat("A", 45)} {
		c, _ := received(t, chunkedBody([]byte("content"), nil, name+":"+value), len("content"), name)
		got, err := io.ReadAll(c)
		e, is := errors.AsType[*sigv4.Error](err)
		if !is || e.Status != http.StatusBadRequest || int64(len(got)) >= c.length() {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Trailers that the node does not know are left out, and so are those that no payload of the kind can have.
func TestNewChunks(t *testing.T) {
	for name, in := range map[string]struct {
		kind, trailer string
		chunks        bool
	}{
		"a checksum":               {trailing, "x-amz-checksum-crc32", true},
		"a signed one":             {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "X-Amz-Checksum-Crc32", true},
		"none":                     {trailing, "", false},
		"two":                      {trailing, "x-amz-checksum-crc32,x-amz-checksum-sha1", false},
		"another":                  {trailing, "x-amz-meta-a", false},
		"of a payload in one part": {unsigned, "x-amz-checksum-crc32", false},
	} {
		r := &request{Request: &http.Request{Header: http.Header{"X-Amz-Trailer": {in.trailer}}},
			signed: &sigv4.Signed{ContentSHA256: in.kind, DecodedLength: 5}}
		c := newChunks(r, nil)
		if (c != nil) != in.chunks {
			t.Errorf("%s: %v", name, c != nil)
		}
		if c == nil {
			continue
		}
		h := http.Header{"Content-Encoding": {"gzip"}}
		c.describe(h)
		if h.Get("Content-Encoding") != "aws-chunked,gzip" || h.Get("X-Amz-Decoded-Content-Length") != "5" ||
			h.Get("X-Amz-Trailer") != "x-amz-checksum-crc32" {
			t.Errorf("%s: described as %v", name, h)
		}
		unchunk(h)
		if len(h) != 1 || h.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: without chunks it is described as %v", name, h)
		}
	}
}

func TestUnchunk(t *testing.T) {
	for _, in := range []struct{ own, want []string }{
		{nil, nil}, {[]string{"aws-chunked"}, nil}, {[]string{"gzip"}, []string{"gzip"}}, {[]string{""}, nil},
		{[]string{"AWS-Chunked, gzip,br"}, []string{"gzip,br"}}, {[]string{"gzip", "aws-chunked"}, []string{"gzip"}},
	} {
		h := http.Header{}
		if in.own != nil {
			h["Content-Encoding"] = in.own
		}
		unchunk(h)
		if got := h["Content-Encoding"]; fmt.Sprint(got) != fmt.Sprint(in.want) {
			t.Errorf("%q becomes %q", in.own, got)
		}
	}
}
