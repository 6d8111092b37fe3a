package s3proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

const (
	// trailing says that the payload comes in chunks without signatures, and a trailer after it.
	trailing = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	// chunkSize is that of a chunk, in bytes: as SDKs send them. Some stores take 16 MiB at most.
	chunkSize = 64 << 10
	// lineEnd ends the lines of chunks.
	lineEnd = "\r\n"
)

// trailers are the checksums that can follow a payload, by their lengths in base64, in bytes (Amazon S3 User Guide,
// "Checking object integrity for data uploads").
var trailers = map[string]int{"X-Amz-Checksum-Crc32": 8, "X-Amz-Checksum-Crc32c": 8, "X-Amz-Checksum-Crc64nvme": 12,
	"X-Amz-Checksum-Sha1": 28, "X-Amz-Checksum-Sha256": 44}

// chunks is a payload as aws-chunked, with one trailer (Amazon S3 API Reference, "Authenticating Requests: Using the
// Authorization Header (Transferring Payload in Multiple Chunks)").
type chunks struct {
	from    *payload
	trailer string
	decoded int64

	left  int64  // bytes of the payload that are in no chunk yet
	chunk int64  // and those that are to come of the chunk that has begun
	text  string // what is between
	ended bool
}

// chunked tells whether a request's body is aws-chunked.
func (r *request) chunked() bool { return strings.HasPrefix(r.signed.ContentSHA256, "STREAMING-") }

// newChunks is how a payload with a trailer goes on; nil: it has none.
func newChunks(r *request, from *payload) *chunks {
	name := http.CanonicalHeaderKey(r.Header.Get("X-Amz-Trailer"))
	if trailers[name] == 0 || !r.chunked() {
		return nil
	}
	return &chunks{from: from, trailer: name, decoded: r.signed.DecodedLength, left: r.signed.DecodedLength}
}

func head(n int64) string { return strconv.FormatInt(n, 16) + lineEnd }

// length is that of the body, in bytes.
func (c *chunks) length() int64 {
	n := c.decoded + c.decoded/chunkSize*int64(len(head(chunkSize))+len(lineEnd))
	if rest := c.decoded % chunkSize; rest > 0 {
		n += int64(len(head(rest)) + len(lineEnd))
	}
	return n + int64(len(c.end(strings.Repeat("=", trailers[c.trailer]))))
}

// end is what follows the payload.
func (c *chunks) end(checksum string) string {
	return head(0) + strings.ToLower(c.trailer) + ":" + checksum + lineEnd + lineEnd
}

// describe says in a header how the payload comes.
func (c *chunks) describe(h http.Header) {
	coding := "aws-chunked"
	if own := h.Get("Content-Encoding"); own != "" {
		coding += "," + own
	}
	h.Set("Content-Encoding", coding)
	h.Set("X-Amz-Decoded-Content-Length", strconv.FormatInt(c.decoded, 10))
	h.Set("X-Amz-Trailer", strings.ToLower(c.trailer))
}

// Read implements io.Reader.
func (c *chunks) Read(b []byte) (int, error) {
	for len(b) > 0 {
		switch {
		case c.text != "":
			n := copy(b, c.text)
			c.text = c.text[n:]
			return n, nil
		case c.chunk > 0:
			n, err := c.from.Read(b[:min(int64(len(b)), c.chunk)])
			if c.chunk -= int64(n); c.chunk == 0 {
				c.text = lineEnd
			}
			if err == io.EOF && n > 0 {
				err = nil // the trailer follows
			}
			return n, err
		case c.left > 0:
			c.chunk = min(c.left, chunkSize)
			c.left -= c.chunk
			c.text = head(c.chunk)
		case !c.ended:
			if _, err := c.from.Read(make([]byte, 1)); err != io.EOF {
				return 0, err
			}
			checksum := c.from.Trailer().Get(c.trailer)
			if len(checksum) != trailers[c.trailer] { // the length was announced
				return 0, &sigv4.Error{Code: "InvalidRequest", Status: http.StatusBadRequest,
					Message: "the trailer " + strings.ToLower(c.trailer) + " is not a checksum of its kind"}
			}
			c.ended = true
			c.text = c.end(checksum)
		default:
			return 0, io.EOF
		}
	}
	return 0, nil
}
