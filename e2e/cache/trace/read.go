package trace

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// What a file may have: requests and bytes of a line, so that the memory is bounded, and bytes of all requests, which
// are added up.
const (
	requestsMost = 20_000_000
	lineMost     = 4096
	bytesMost    = math.MaxInt64 / 4
)

// Read reads a published trace, a request a line, in the order of time. There are two formats.
//
// The object store traces of IBM (SNIA IOTTA repository, 36305), which have time in ms, operation, key, size, and the
// range that was read:
//
//	1219008 REST.GET.OBJECT 8d4fcda3d675bac9 1056 0 1055
//
// GETs are requests for the whole object; PUT, COPY and DELETE change it. What else there is, and a GET without a size,
// which found nothing, is left out.
//
// CSV with time, key and size first, as libCacheSim writes it, and more columns if there are some:
//
//	1219008,8d4fcda3d675bac9,1056
//
// An object of another size is another object. The first line may name the columns. Empty lines and those that begin
// with # are left out.
func Read(r io.Reader) (Trace, error) {
	var t Trace
	contents := map[[sha256.Size]byte]int{} // those of the keys now, by digests of these, which are small
	objects, bytes, line := 0, int64(0), 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMost)
	for lines.Scan() {
		line++
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		e, err := parse(text)
		switch {
		case err != nil && line == 1 && strings.Contains(text, ","): // names of columns
			continue
		case err != nil:
			return t, fmt.Errorf("line %d: %w", line, err)
		case len(t.Requests) == requestsMost:
			return t, fmt.Errorf("line %d: more than %d requests; cut the file with head(1)", line, requestsMost)
		case e.size > bytesMost-bytes:
			return t, fmt.Errorf("line %d: the requests are for more than %d bytes", line, int64(bytesMost))
		}
		key := sha256.Sum256([]byte(e.key))
		if e.changes {
			delete(contents, key)
		}
		if !e.reads {
			continue
		}
		object, known := contents[key]
		if !known {
			object = objects
			objects++
			contents[key] = object
			t.Footprint += e.size
		}
		bytes += e.size
		t.Requests = append(t.Requests, Request{Object: object, Size: e.size})
	}
	if err := lines.Err(); err != nil {
		return t, fmt.Errorf("line %d: %w", line+1, err)
	}
	if len(t.Requests) == 0 {
		return t, errors.New("no requests")
	}
	return t, nil
}

// entry is what a line says.
type entry struct {
	key            string
	size           int64
	reads, changes bool
}

func parse(text string) (e entry, err error) {
	if columns := strings.Split(text, ","); len(columns) >= 3 {
		// The size belongs to the key: an object of another one is another object.
		e = entry{key: columns[1] + "," + columns[2], reads: true}
		e.size, err = sizeIn(columns[2])
		return e, err
	}
	columns := strings.Fields(text)
	if len(columns) < 3 {
		return e, fmt.Errorf("%.80q is neither time,key,size nor time, operation, key and size as IBM has them", text)
	}
	e.key = columns[2]
	switch columns[1] {
	case "REST.GET.OBJECT":
		if e.reads = len(columns) > 3; e.reads {
			e.size, err = sizeIn(columns[3])
		}
	case "REST.PUT.OBJECT", "REST.DELETE.OBJECT", "REST.COPY.OBJECT":
		e.changes = true
	}
	return e, err
}

func sizeIn(text string) (int64, error) {
	size, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("size %.40q is no number of bytes", text)
	}
	return size, nil
}
