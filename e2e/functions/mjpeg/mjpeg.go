// Package mjpeg splits a Motion JPEG stream, JPEG images one after the other, into its
// frames. The stream may come from anybody.
package mjpeg

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// Marker codes of JPEG (ITU-T T.81, table B.1). A marker is 0xFF, any number of times,
// and its code.
const (
	prefix       = 0xFF
	stuffing     = 0x00 // makes a data byte of the 0xFF before it
	firstSegment = 0xC0 // codes from here on, but for those below, head a segment
	firstRestart = 0xD0
	lastRestart  = 0xD7
	startOfImage = 0xD8
	endOfImage   = 0xD9
	startOfScan  = 0xDA
)

// frameStart is how an image begins: its start marker and the prefix of the next one.
var frameStart = []byte{prefix, startOfImage, prefix}

// Frames yields the whole frames of data in their order, as slices of it. It skips what is
// not a frame: boundaries between frames, damaged ones, and one cut off at the end. It
// follows the segments of each image, so a thumbnail inside one is no frame of its own.
//
// Its time is linear in the data: what a damaged frame has claimed as its own before the
// damage is not looked at again, at the price of a good frame that may lie there.
func Frames(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			start := bytes.Index(data, frameStart)
			if start < 0 {
				return
			}
			data = data[start:]
			n, whole := measure(data)
			if whole && !yield(data[:n:n]) {
				return
			}
			data = data[n:]
		}
	}
}

// measure returns the length of the frame that data begins with, or how far it makes
// sense as one.
func measure(data []byte) (n int, whole bool) {
	scanned := false // an image without a scan has no pixels
	for i := len(frameStart) - 1; i+1 < len(data); {
		code := data[i+1]
		switch {
		case data[i] != prefix, code == startOfImage:
			return i, false
		case code == prefix:
			i++
			continue
		case code == endOfImage:
			return i + 2, scanned
		case code < firstSegment, isRestart(code):
			return i, false
		}
		end := segmentEnd(data, i+2)
		if end < 0 {
			break
		}
		i = end
		if code == startOfScan {
			scanned = true
			i = scanEnd(data, i)
		}
	}
	return len(data), false
}

// segmentEnd is where the segment whose length is at i ends; -1: not within data.
func segmentEnd(data []byte, i int) int {
	const lengthBytes = 2 // which the length counts too
	if i+lengthBytes > len(data) {
		return -1
	}
	end := i + max(int(binary.BigEndian.Uint16(data[i:])), lengthBytes)
	if end > len(data) {
		return -1
	}
	return end
}

// scanEnd is where the entropy-coded data from i on ends: at the next marker that is not
// part of it.
func scanEnd(data []byte, i int) int {
	for {
		next := bytes.IndexByte(data[i:], prefix)
		if next < 0 || i+next+1 >= len(data) {
			return len(data)
		}
		i += next
		switch code := data[i+1]; {
		case code == prefix:
			i++
		case code == stuffing, isRestart(code):
			i += 2
		default:
			return i
		}
	}
}

func isRestart(code byte) bool { return firstRestart <= code && code <= lastRestart }
