package sigv4

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	// chunkMost is the size in bytes of a chunk that has a signature, and is held until that is verified. SDKs send
	// 128 KiB at most. Chunks without signatures are not held: some SDKs send all of a payload as one.
	chunkMost = 16 << 20
	// lineMost is the length in bytes of a chunk's header, and of all trailers. SDKs send about 100.
	lineMost = 4 << 10
	// blanksMost is how many empty lines may come after the last chunk. AWS's SDKs send one, after the trailers.
	// minio-go sends two, one of them before x-amz-trailer-signature.
	blanksMost = 2
	// nothing is the SHA-256 of no bytes.
	nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func (s *Signed) signsChunks() bool {
	return s.ContentSHA256 == signedChunks || s.ContentSHA256 == signedTrailer
}

func (p *Payload) someOfChunk(b []byte) (int, error) {
	if p.chunk == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
		if p.chunk == 0 {
			return 0, bad("IncompleteBody", "the chunks have fewer bytes than x-amz-decoded-content-length says")
		}
	}
	from := io.Reader(p.from)
	if p.signed.signsChunks() {
		from = &p.held
	}
	n, err := from.Read(b[:min(int64(len(b)), p.chunk)])
	p.chunk -= int64(n)
	if n == 0 {
		return 0, failed(err)
	}
	return n, nil
}

// next begins a chunk, as in "Signature Calculations for the Authorization Header: Transferring Payload in Multiple
// Chunks (Chunked Upload)".
func (p *Payload) next() error {
	if p.begun {
		if end, err := p.line(); err != nil {
			return failed(err)
		} else if end != "\r" {
			return bad("InvalidRequest", "a chunk does not end where its header says")
		}
	}
	p.begun = true
	line, err := p.line()
	if err != nil {
		return failed(err)
	}
	header, whole := strings.CutSuffix(line, "\r")
	digits, extension, extended := strings.Cut(header, ";")
	size, err := strconv.ParseUint(digits, 16, 63)
	signature, hasSignature := strings.CutPrefix(extension, "chunk-signature=")
	signed := p.signed.signsChunks()
	if !whole || err != nil || extended != signed || hasSignature != signed {
		return bad("InvalidRequest", "a chunk's header is not as in %s", p.signed.ContentSHA256)
	}
	if p.chunk = int64(size); p.chunk > p.left {
		return bad("IncompleteBody", "the chunks have more bytes than x-amz-decoded-content-length says")
	}
	if !signed {
		return nil
	}
	if size > chunkMost {
		return forbidden("InvalidChunkSizeError", "a chunk that has a signature may have %d bytes", chunkMost)
	}
	p.held.Reset()
	if _, err := io.CopyN(&p.held, p.from, p.chunk); err != nil {
		return failed(err)
	}
	return p.follows(signature, algorithm+"-PAYLOAD", nothing, sum(p.held.Bytes()))
}

// follows verifies the signature that comes after the previous one.
func (p *Payload) follows(signature, algorithm string, lines ...string) error {
	want := p.signed.sign(algorithm, append([]string{p.previous}, lines...)...)
	if !equal(signature, want) {
		return forbidden("SignatureDoesNotMatch", "the signature of a chunk or of the trailers is wrong")
	}
	p.previous = want
	return nil
}

// finishChunks reads the last chunk, which is empty, and the trailers, as in "Signature calculations for trailing
// headers (chunked uploads)".
func (p *Payload) finishChunks() error {
	if err := p.next(); err != nil {
		return err
	}
	var signature string
	size, blanks := 0, 0
	for {
		line, err := p.line()
		if err == io.EOF {
			break
		} else if err != nil {
			return failed(err)
		}
		if size += len(line); size > lineMost {
			return bad("MalformedTrailerError", "the trailers may have %d bytes", lineMost)
		}
		line = strings.TrimSuffix(line, "\r") // minio-go leaves it out
		name, value, _ := strings.Cut(line, ":")
		name = http.CanonicalHeaderKey(name)
		values, named := p.trailer[name]
		switch {
		case line == "" && blanks < blanksMost:
			blanks++
		case name == "X-Amz-Trailer-Signature" && p.signed.ContentSHA256 == signedTrailer && signature == "":
			signature = value
		case named && values == nil:
			p.trailer[name] = []string{strings.TrimSpace(value)}
		default:
			return bad("MalformedTrailerError", "after the last chunk the body may have the trailers that "+
				"x-amz-trailer names, each once, and nothing else")
		}
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.trailer)) {
		if p.trailer[name] == nil {
			return bad("MalformedTrailerError", "x-amz-trailer names %.64q, which the body does not have", name)
		}
		lines.WriteString(strings.ToLower(name) + ":" + p.trailer.Get(name) + "\n")
	}
	if p.signed.ContentSHA256 == signedTrailer {
		return p.follows(signature, algorithm+"-TRAILER", sum([]byte(lines.String())))
	}
	return nil
}

// line returns a line without its newline. Its error is io.EOF if nothing is left.
func (p *Payload) line() (string, error) {
	line, err := p.from.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return "", bad("InvalidRequest", "a line between chunks may have %d bytes", lineMost)
	case err == io.EOF && len(line) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return string(line[:len(line)-1]), nil
}
