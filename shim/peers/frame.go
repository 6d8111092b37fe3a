package peers

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// An answer is a sequence of frames: a kind, the length of what follows (4 bytes, big-endian), and that.
const (
	frameObject   byte = 'o' // the object, as JSON
	frameSame     byte = 's' // the version that the asker has is the one of now: a source.Unchanged, as JSON
	frameReferral byte = 'r' // names of nodes that have the object, as a JSON list; digests follow
	frameDigest   byte = 'd' // a block's digest
	frameBlock    byte = 'b' // a block's digest and the block
	frameFailed   byte = 'f' // a problem, as JSON
)

const (
	headSize = 5
	sumSize  = len(digest.Sum{})
	// frameBlockMost is how many bytes the frame of a block has at most.
	frameBlockMost = sumSize + digest.Block
)

// sizes are the least and the most bytes that follow a frame's head.
var sizes = map[byte][2]int{
	frameSame: {2, 64}, frameFailed: {2, problemMost}, frameObject: {2, 8 << 10}, frameReferral: {2, 4 << 10},
	frameDigest: {sumSize, sumSize}, frameBlock: {sumSize + 1, frameBlockMost},
}

// head is that of a frame with n bytes.
func head(kind byte, n int) []byte { return binary.BigEndian.AppendUint32([]byte{kind}, uint32(n)) }

// readHead reads the head of a frame of which exactly n bytes follow.
func readHead(r io.Reader) (kind byte, n int, err error) {
	var raw [headSize]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return 0, 0, err
	}
	kind, size := raw[0], binary.BigEndian.Uint32(raw[1:])
	if most, known := sizes[kind]; !known || size < uint32(most[0]) || size > uint32(most[1]) {
		return 0, 0, fmt.Errorf("a peer answers with a frame %q of %d bytes", kind, size)
	}
	return kind, int(size), nil
}

// versionMost is how many bytes a version has at most: questions have it as well.
const versionMost = 1 << 10

func parseObject(body []byte) (o source.Object, err error) {
	if err := json.Unmarshal(body, &o); err != nil {
		return o, fmt.Errorf("a peer's object: %w", err)
	}
	if o.Size < 0 || o.Version == "" || len(o.Version) > versionMost {
		return o, errors.New("a peer's object is without size or version, or the version is too long")
	}
	return o, nil
}

// problemMost bounds a peer's problem, in bytes.
const problemMost = 4 << 10

// failure is a problem as a frame has it: one that is too long without its words.
func failure(p *problem.Problem) []byte {
	body, err := json.Marshal(p)
	if err != nil || len(body) > problemMost {
		body, _ = json.Marshal(problem.New(p.Status, problem.Reason(p.Title), p.Field, ""))
	}
	return body
}

// parseFailure is why a peer cannot answer, which goes into metrics.
func parseFailure(body []byte) error {
	var p problem.Problem
	if err := json.Unmarshal(body, &p); err != nil || !problem.IsTitle(p.Title) ||
		p.Status < http.StatusBadRequest || p.Status > 599 {
		return errors.New("a peer fails without a reason")
	}
	return problem.New(p.Status, problem.Reason(p.Title), p.Field, p.Detail)
}
