package sigv4_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

const (
	signedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// chunker writes aws-chunked as SDKs do.
type chunker struct {
	s        *signing
	previous string
	b        strings.Builder
}

func (s *signing) chunker() *chunker { return &chunker{s: s, previous: s.signature()} }

// sign continues the chain of signatures.
func (c *chunker) sign(algorithm string, parts ...string) string {
	head := []string{"AWS4-HMAC-SHA256-" + algorithm, c.s.date, c.s.scope, c.previous}
	c.previous = hex.EncodeToString(hmacOf(c.s.key(), strings.Join(append(head, parts...), "\n")))
	return c.previous
}

// chunk writes a chunk, or of an empty one the header.
func (c *chunker) chunk(data string) *chunker {
	fmt.Fprintf(&c.b, "%x", len(data))
	if c.s.payload != unsignedTrailer {
		c.b.WriteString(";chunk-signature=" + c.sign("PAYLOAD", ofNothing, hashOf(data)))
	}
	c.b.WriteString("\r\n" + data)
	if data != "" {
		c.b.WriteString("\r\n")
	}
	return c
}

// end writes the trailers, "name:value" and sorted, as AWS's SDKs do.
func (c *chunker) end(trailers ...string) string {
	signed := ""
	for _, t := range trailers {
		c.b.WriteString(t + "\r\n")
		signed += t + "\n"
	}
	if c.s.payload == signedTrailer {
		c.b.WriteString("x-amz-trailer-signature:" + c.sign("TRAILER", hashOf(signed)) + "\r\n")
	}
	c.b.WriteString("\r\n")
	return c.b.String()
}

// endOfMinio writes the trailers as minio-go does.
func (c *chunker) endOfMinio(trailers ...string) string {
	signed := strings.Join(trailers, "\n") + "\n"
	c.b.WriteString(signed + "\r\n")
	if c.s.payload == signedTrailer {
		c.b.WriteString("x-amz-trailer-signature:" + c.sign("TRAILER", hashOf(signed)) + "\r\n")
	}
	c.b.WriteString("\r\n")
	return c.b.String()
}

// opened is the payload of a request with this body.
func opened(t testing.TB, s *signing, body io.Reader) *sigv4.Payload {
	t.Helper()
	r, err := parse(s.raw())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sigv4.Verify(r, exampleTime, exampleKeys)
	if err != nil {
		t.Fatal(err)
	}
	return signed.Body(body)
}

const crc = "x-amz-checksum-crc32"

// Each way in which SDKs write chunks is read.
func TestChunks(t *testing.T) {
	plain, signed := streaming(unsignedTrailer, 5, crc), streaming(signedTrailer, 5, crc)
	none, two := streaming(signedChunks, 0), streaming(signedTrailer, 5, "X-Amz-Meta-B", " x-amz-meta-a")
	value := crc + ":NhCmhg=="
	for name, c := range map[string]struct {
		s          *signing
		body, want string
		trailer    http.Header
	}{
		"unsigned, as AWS's SDKs write": {plain, "5\r\nhello\r\n0\r\n" + value + "\r\n\r\n", "hello", nil},
		"unsigned, as minio-go writes":  {plain, "5\r\nhello\r\n0\r\n" + value + "\n\r\n\r\n", "hello", nil},
		"unsigned, several chunks": {
			plain, "2\r\nhe\r\n03\r\nllo\r\n00\r\n" + value + "\r\n\r\n", "hello", nil,
		},
		"unsigned, upper case": {
			plain, "2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Amz-Checksum-CRC32: NhCmhg== \r\n\r\n", "hello", nil,
		},
		"unsigned, without the empty line": {plain, "5\r\nhello\r\n0\r\n" + value + "\r\n", "hello", nil},
		"unsigned, without trailers": {
			streaming(unsignedTrailer, 5), "5\r\nhello\r\n0\r\n", "hello", http.Header{},
		},
		"unsigned, 4 KiB of trailers": {
			streaming(unsignedTrailer, 5, "a", "b"),
			"5\r\nhello\r\n0\r\na:" + strings.Repeat("x", 3000) + "\r\nb:" + strings.Repeat("x", 1090) + "\r\n",
			"hello", http.Header{"A": {strings.Repeat("x", 3000)}, "B": {strings.Repeat("x", 1090)}},
		},
		"unsigned, empty": {streaming(unsignedTrailer, 0), "0\r\n\r\n", "", http.Header{}},
		"signed, as AWS's SDKs write": {
			signed, signed.chunker().chunk("hel").chunk("lo").chunk("").end(value), "hello", nil,
		},
		"signed, as minio-go writes": {
			signed, signed.chunker().chunk("hello").chunk("").endOfMinio(value), "hello", nil,
		},
		"signed, empty": {none, none.chunker().chunk("").end(), "", http.Header{}},
		"signed, two trailers, not in order": {
			two, strings.Replace(two.chunker().chunk("hello").chunk("").end("x-amz-meta-a:1", "x-amz-meta-b:2"),
				"x-amz-meta-a:1\r\nx-amz-meta-b:2\r\n", "x-amz-meta-b:2\r\nx-amz-meta-a:1\r\n", 1),
			"hello", http.Header{"X-Amz-Meta-A": {"1"}, "X-Amz-Meta-B": {"2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.trailer == nil {
				c.trailer = http.Header{"X-Amz-Checksum-Crc32": {"NhCmhg=="}}
			}
			readers := []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader, iotest.HalfReader}
			for _, in := range readers {
				p := opened(t, c.s, in(strings.NewReader(c.body)))
				if d := p.Trailer(); d != nil {
					t.Errorf("before the end there are trailers: %v", d)
				}
				if err := iotest.TestReader(p, []byte(c.want)); err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(c.trailer, p.Trailer()); d != "" {
					t.Errorf("the trailers (-want +got):\n%s", d)
				}
			}
		})
	}
}

// A body that is not as its headers say is refused before its last byte is returned.
func TestBodiesThatAreRefused(t *testing.T) {
	plain, signed := streaming(unsignedTrailer, 5, crc), streaming(signedTrailer, 5, crc)
	chunks, late := streaming(signedChunks, 5), streaming(signedTrailer, 6, crc)
	unsigned := inHeader().send("Content-Length: 5")
	whole := inHeader().send("Content-Length: 5").change("UNSIGNED-PAYLOAD", hashOf("hello"))
	named := streaming(signedChunks, 5, crc)
	const value = crc + ":NhCmhg=="
	sig := ";chunk-signature=" + strings.Repeat("0", 64)
	good := func() *chunker { return signed.chunker().chunk("hel").chunk("lo").chunk("") }
	replaced := func(body, what, by string) string {
		if !strings.Contains(body, what) {
			t.Fatalf("%q is not in %q", what, body)
		}
		return strings.Replace(body, what, by, 1)
	}
	trailerSignature := func(body string) string { return body[strings.Index(body, "x-amz-trailer-signature:"):] }
	for name, c := range map[string]struct {
		s                     *signing
		body, got, code, word string
	}{
		"another SHA-256":        {whole, "jello", "", "XAmzContentSHA256Mismatch", "x-amz-content-sha256"},
		"a short body":           {whole, "hell", "hell", "IncompleteBody", "ended"},
		"a long body":            {whole, "hello!", "", "IncompleteBody", "content-length"},
		"a short body, unsigned": {unsigned, "hell", "hell", "IncompleteBody", "ended"},
		"a long body, unsigned":  {unsigned, "hello!", "", "IncompleteBody", "content-length"},
		"no chunk":               {plain, "", "", "IncompleteBody", "ended"},
		"fewer bytes": {
			plain, "4\r\nhell\r\n0\r\n" + value + "\r\n\r\n", "hell", "IncompleteBody", "fewer",
		},
		"more bytes": {plain, "6\r\nhello!\r\n0\r\n" + value + "\r\n\r\n", "", "IncompleteBody", "more"},
		"one chunk more": {
			plain, "5\r\nhello\r\n1\r\n!\r\n0\r\n" + value + "\r\n\r\n", "", "IncompleteBody", "more",
		},
		"an enormous chunk":  {plain, "7fffffffffffffff\r\nhello", "", "IncompleteBody", "more"},
		"a chunk beyond all": {plain, "10000000000000005\r\nhello", "", "InvalidRequest", "header"},
		"a negative chunk":   {plain, "-5\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"a prefix":           {plain, "0x5\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"no size":            {plain, "\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"a newline only":     {plain, "5\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"an extension":       {plain, "5;a=b\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"a signature": {
			plain, "5" + sig + "\r\nhello\r\n0" + sig + "\r\n" + value + "\r\n", "", "InvalidRequest", "header",
		},
		"an empty extension":       {plain, "5;\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "header"},
		"no end of a chunk":        {plain, "5\r\nhello0\r\n" + value + "\r\n", "", "InvalidRequest", "end"},
		"a short end of a chunk":   {plain, "5\r\nhello\n0\r\n" + value + "\r\n", "", "InvalidRequest", "end"},
		"no end of the last chunk": {plain, "5\r\nhello\r\n0", "", "IncompleteBody", "ended"},
		"no last chunk":            {plain, "5\r\nhello\r\n", "", "IncompleteBody", "ended"},
		"half a trailer":           {plain, "5\r\nhello\r\n0\r\n" + value, "", "IncompleteBody", "ended"},
		"a long line": {
			plain, strings.Repeat("0", 4096) + "5\r\nhello\r\n0\r\n" + value + "\r\n", "", "InvalidRequest", "4096",
		},
		"long trailers": {
			streaming(unsignedTrailer, 5, "a", "b"),
			"5\r\nhello\r\n0\r\na:" + strings.Repeat("x", 3000) + "\r\nb:" + strings.Repeat("x", 1091) + "\r\n",
			"", "MalformedTrailerError", "4096",
		},
		"no trailer": {plain, "5\r\nhello\r\n0\r\n\r\n", "", "MalformedTrailerError", "Crc32"},
		"another trailer": {
			plain, "5\r\nhello\r\n0\r\n" + value + "\r\nx-amz-meta-a:1\r\n\r\n", "", "MalformedTrailerError",
			"x-amz-trailer",
		},
		"a trailer twice": {
			plain, "5\r\nhello\r\n0\r\n" + value + "\r\n" + value + "\r\n\r\n", "", "MalformedTrailerError", "once",
		},
		"more after the end": {
			plain, "5\r\nhello\r\n0\r\n" + value + "\r\n\r\nmore\r\n", "", "MalformedTrailerError", "nothing else",
		},
		"empty lines": {
			plain, "5\r\nhello\r\n0\r\n" + value + "\r\n\r\n\r\n\r\n", "", "MalformedTrailerError", "nothing else",
		},
		"trailers not named": {
			streaming(unsignedTrailer, 5), "5\r\nhello\r\n0\r\n" + value + "\r\n\r\n", "", "MalformedTrailerError",
			"x-amz-trailer",
		},
		"a signature unasked": {
			plain, "5\r\nhello\r\n0\r\n" + value + "\r\n" + trailerSignature(good().end(value)), "",
			"MalformedTrailerError", "nothing else",
		},
		"a trailer in a kind without": {
			named, named.chunker().chunk("hello").chunk("").end(value), "", "MalformedTrailerError", "nothing else",
		},

		"no signatures":     {chunks, "5\r\nhello\r\n0\r\n\r\n", "", "InvalidRequest", signedChunks},
		"another extension": {chunks, "5;chunk=1\r\nhello\r\n0\r\n\r\n", "", "InvalidRequest", signedChunks},
		"a wrong signature": {
			chunks, "5" + sig + "\r\nhello\r\n0" + sig + "\r\n\r\n", "", "SignatureDoesNotMatch", "chunk",
		},
		"an empty signature": {
			chunks, "5;chunk-signature=\r\nhello\r\n0" + sig + "\r\n\r\n", "", "SignatureDoesNotMatch", "chunk",
		},
		"a changed chunk": {
			signed, replaced(good().end(value), "lo\r\n", "la\r\n"), "hel", "SignatureDoesNotMatch", "chunk",
		},
		"a chunk left out": {
			late,
			replaced(late.chunker().chunk("x").chunk("hello!").chunk("").end(value),
				late.chunker().chunk("x").b.String(), ""),
			"", "SignatureDoesNotMatch", "chunk",
		},
		"a chunk twice": {
			late, strings.Repeat(late.chunker().chunk("hel").b.String(), 2), "hel", "SignatureDoesNotMatch",
			"chunk",
		},
		"a wrong last signature": {
			signed, signed.chunker().chunk("hello").b.String() + "0" + sig + "\r\n" + value + "\r\n\r\n", "",
			"SignatureDoesNotMatch", "chunk",
		},
		"a changed trailer": {
			signed, replaced(good().end(value), value, crc+":AAAAAA=="), "hel", "SignatureDoesNotMatch", "trailers",
		},
		"a wrong trailer signature": {
			signed, replaced(good().end(value), "trailer-signature:", "trailer-signature:0"), "hel",
			"SignatureDoesNotMatch", "trailers",
		},
		"no trailer signature": {
			signed, good().b.String() + value + "\r\n\r\n", "hel", "SignatureDoesNotMatch", "trailers",
		},
		"two trailer signatures": {
			signed, good().end(value) + trailerSignature(good().end(value)), "hel", "MalformedTrailerError", "once",
		},
		"a chunk that is cut": {
			chunks, chunks.chunker().chunk("hello").b.String()[:90], "", "IncompleteBody", "ended",
		},
		"a large chunk": {
			streaming(signedChunks, 1<<25), "1000001" + sig + "\r\n", "", "InvalidChunkSizeError", "16777216",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := opened(t, c.s, strings.NewReader(c.body))
			got, err := io.ReadAll(p)
			if string(got) != c.got {
				t.Errorf("%q is returned, not %q", got, c.got)
			}
			refused(t, err, c.code, c.word, exampleSecret, c.s.signature())
			if n, again := p.Read(make([]byte, 1)); n != 0 || again != err {
				t.Errorf("then it is read on: %d, %v", n, again)
			}
			if p.Trailer() != nil {
				t.Error("it has trailers")
			}
		})
	}
}

// A chunk that has a signature may have 16 MiB.
func TestTheLargestChunk(t *testing.T) {
	s := streaming(signedChunks, 16<<20)
	p := opened(t, s, strings.NewReader(s.chunker().chunk(strings.Repeat("x", 16<<20)).chunk("").end()))
	if n, err := io.Copy(io.Discard, p); err != nil || n != 16<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// An error of the body itself is returned as it is, wherever it comes.
func TestABodyThatFails(t *testing.T) {
	gone := errors.New("gone")
	signed, plain := streaming(signedTrailer, 5, crc), streaming(unsignedTrailer, 5, crc)
	whole := inHeader().send("Content-Length: 5")
	for _, c := range []struct {
		s    *signing
		body string
	}{
		{signed, signed.chunker().chunk("hel").chunk("lo").chunk("").end(crc + ":x")},
		{plain, plain.chunker().chunk("hel").chunk("lo").chunk("").end(crc + ":x")},
		{whole, "hello"},
	} {
		for i := range len(c.body) + 1 {
			p := opened(t, c.s, io.MultiReader(strings.NewReader(c.body[:i]), iotest.ErrReader(gone)))
			if got, err := io.ReadAll(p); err != gone || len(got) >= 5 {
				t.Errorf("after %q %q was read, and %v", c.body[:i], got, err)
			}
			p = opened(t, c.s, io.MultiReader(strings.NewReader(c.body[:i]), iotest.ErrReader(io.ErrUnexpectedEOF)))
			_, err := io.ReadAll(p)
			refused(t, err, "IncompleteBody", "ended")
		}
	}
}

// One bit of a signed body is not changed without its meaning the same, or its being refused; and what is returned
// before is what the client has sent.
func TestEveryBitOfAChunkIsSigned(t *testing.T) {
	s := streaming(signedTrailer, 16, crc)
	body := s.chunker().chunk("0123456789abcde").chunk("f").chunk("").end(crc + ":NhCmhg==")
	for i := range 8 * len(body) {
		flipped := []byte(body)
		flipped[i/8] ^= 1 << (i % 8)
		p := opened(t, s, bytes.NewReader(flipped))
		got, err := io.ReadAll(p)
		if err == nil && (string(got) != "0123456789abcdef" || p.Trailer().Get(crc) != "NhCmhg==") {
			t.Errorf("%q is accepted as %q, %v", flipped, got, p.Trailer())
		}
		if err != nil && string(got) != "" && string(got) != "0123456789abcde" {
			t.Errorf("of %q there is returned %q", flipped, got)
		}
	}
}

// Whatever the chunks and the pieces are that a payload comes in, all of it is read through net/http; and if any byte
// of a signed one is changed, only whole chunks before the change are.
func TestChunksOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{signedChunks, signedTrailer, unsignedTrailer}).Draw(t, "kind")
		pieces := rapid.SliceOfN(rapid.StringN(1, -1, 9000), 0, 5).Draw(t, "chunks")
		want := strings.Join(pieces, "")
		var trailers []string
		if kind != signedChunks {
			trailers = []string{crc}
		}
		s := streaming(kind, len(want), trailers...)
		c := s.chunker()
		for _, p := range pieces {
			c.chunk(p)
		}
		c.chunk("")
		for i := range trailers {
			trailers[i] += ":NhCmhg=="
		}
		s.body = c.end(trailers...)
		s.transfer = rapid.Bool().Draw(t, "transfer encoding")
		read := func(raw string) (string, error) {
			r, err := parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			signed, err := sigv4.Verify(r, exampleTime, exampleKeys)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			b := make([]byte, rapid.IntRange(1, 5000).Draw(t, "read"))
			_, err = io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{signed.Body(r.Body)}, b)
			return got.String(), err
		}
		raw := s.raw()
		if got, err := read(raw); err != nil || got != want {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if kind == unsignedTrailer || want == "" {
			return
		}
		at := strings.Index(raw, c.b.String()) + strings.Index(c.b.String(), "\r\n") + 2
		changed := []byte(raw)
		changed[at+rapid.IntRange(0, len(pieces[0])-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		got, err := read(string(changed))
		var e *sigv4.Error
		if !errors.As(err, &e) || got != "" {
			t.Errorf("of a changed payload there is returned %q, %v", got, err)
		}
	})
}
