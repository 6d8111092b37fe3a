package sigv4

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The kinds of payload that x-amz-content-sha256 can name in place of a SHA-256.
const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	signedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Signed is a request whose signature is right.
type Signed struct {
	AccessKeyID, Region string
	// Presigned: the signature came in the query.
	Presigned bool
	// ContentSHA256 is the payload's SHA-256 or kind, as x-amz-content-sha256 has it. Presigned URLs without it are
	// UNSIGNED-PAYLOAD.
	ContentSHA256 string
	// DecodedLength is how many bytes Body returns.
	DecodedLength int64

	key       []byte
	time      time.Time
	signature string
	trailers  []string // the names in x-amz-trailer
}

// chunked tells whether the body is aws-chunked.
func (s *Signed) chunked() bool { return strings.HasPrefix(s.ContentSHA256, "STREAMING-") }

// expect takes what the headers say of the payload.
func (s *Signed) expect(r *http.Request) error {
	switch kind := s.ContentSHA256; {
	case kind == signedTrailer || kind == unsignedTrailer:
		for _, names := range r.Header["X-Amz-Trailer"] {
			for name := range strings.SplitSeq(names, ",") {
				s.trailers = append(s.trailers, http.CanonicalHeaderKey(strings.TrimSpace(name)))
			}
		}
	case kind == unsignedPayload || kind == signedChunks:
	case strings.Contains(kind, "ECDSA"):
		return bad("InvalidRequest", "x-amz-content-sha256 is of Signature Version 4A, which is not supported")
	case len(kind) != 2*sha256.Size || strings.Trim(kind, "0123456789abcdef") != "":
		return bad("InvalidArgument", "x-amz-content-sha256 has to be a SHA-256 in lower-case hex, %s, %s, %s or %s",
			unsignedPayload, signedChunks, signedTrailer, unsignedTrailer)
	}
	name, lengths := "content-length", valuesOf(r, "content-length")
	if s.chunked() {
		name, lengths = "x-amz-decoded-content-length", r.Header["X-Amz-Decoded-Content-Length"]
	}
	if len(lengths) == 0 {
		return &Error{"MissingContentLength", http.StatusLengthRequired, "the header " + name + " is missing"}
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil || len(lengths) > 1 {
		return bad("InvalidArgument", "the header %s has to be one number of bytes", name)
	}
	s.DecodedLength = int64(n)
	return nil
}

// Body returns the request's payload, out of the body as it came.
func (s *Signed) Body(body io.Reader) *Payload {
	p := &Payload{signed: s, from: bufio.NewReaderSize(body, lineMost), left: s.DecodedLength, previous: s.signature}
	switch {
	case s.chunked():
		p.trailer = http.Header{}
		for _, name := range s.trailers {
			p.trailer[name] = nil
		}
	case s.ContentSHA256 != unsignedPayload:
		p.sum = sha256.New()
	}
	return p
}

// Payload is a request's payload, decoded and verified.
type Payload struct {
	signed *Signed
	from   *bufio.Reader
	left   int64 // how many bytes are to come
	err    error
	sum    hash.Hash // of all bytes, if there is one to compare with

	// The rest is of aws-chunked: see chunks.go.
	begun    bool
	chunk    int64        // how many bytes of the chunk are to come
	held     bytes.Buffer // these bytes, of a chunk that has a signature
	previous string       // the last signature
	trailer  http.Header  // nil values are still to come
}

// Read returns the payload. Its error is an *Error that says what is wrong with the payload, or the body's own error.
// No byte of a chunk comes before the chunk's signature is verified. The last bytes only come once all is verified, so
// that a server that is sent DecodedLength bytes has a payload that is right.
func (p *Payload) Read(b []byte) (n int, _ error) {
	if p.err != nil {
		return 0, p.err
	}
	if p.left > 0 {
		n, p.err = p.some(b[:min(int64(len(b)), p.left)])
		p.left -= int64(n)
	}
	if p.left == 0 {
		if p.err = p.finish(); p.err != nil {
			return 0, p.err
		}
		p.err = io.EOF
	}
	return n, p.err
}

// Trailer returns the trailers after Read has returned io.EOF, and nil before that.
func (p *Payload) Trailer() http.Header {
	if p.err != io.EOF {
		return nil
	}
	return p.trailer
}

// some reads bytes of the payload. If there are any, it has no error.
func (p *Payload) some(b []byte) (int, error) {
	if p.signed.chunked() {
		return p.someOfChunk(b)
	}
	n, err := p.from.Read(b)
	if n == 0 {
		return 0, failed(err)
	}
	if p.sum != nil {
		p.sum.Write(b[:n])
	}
	return n, nil
}

// finish verifies what follows the payload's last byte, and the payload.
func (p *Payload) finish() error {
	if p.signed.chunked() {
		return p.finishChunks()
	}
	if _, err := p.from.ReadByte(); err == nil {
		return bad("IncompleteBody", "the body has more bytes than content-length says")
	} else if err != io.EOF {
		return failed(err)
	}
	if p.sum != nil && hex.EncodeToString(p.sum.Sum(nil)) != p.signed.ContentSHA256 {
		return bad("XAmzContentSHA256Mismatch", "the body's SHA-256 is not that in x-amz-content-sha256")
	}
	return nil
}

// failed is an error of the body, which ends too early if it ends.
func failed(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("IncompleteBody", "the body ended before all of it had come; send it again")
	}
	return err
}
