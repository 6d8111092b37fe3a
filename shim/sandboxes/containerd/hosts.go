package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
)

const (
	hostsHead = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
	// hostsMost is when names of before are no longer kept as comments, in bytes: ten times what
	// all functions of a platform have.
	hostsMost = 1 << 20
)

// hosts is the file that sandboxes have as /etc/hosts. By it they find the functions, all of
// them at the gateway of their own node.
//
// Sandboxes have it by a bind mount, so it stays the same file, and programs may be reading it
// at any time, so what is in it stays in its place: names come to its end, and one that goes
// becomes a comment, by its first byte.
type hosts struct {
	path  string
	node  netip.Addr
	lines map[string]*hostsLine // by name
	size  int64
}

type hostsLine struct {
	at   int64 // where it begins
	gone bool
}

// openHosts goes on with what is in the file: instances of before have it.
func openHosts(path string, node netip.Addr) (*hosts, error) {
	h := &hosts{path: path, node: node}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the sandboxes' hosts file: %w", err)
	}
	if h.parse(text) {
		return h, nil
	}
	return h, h.empty()
}

// parse is false if the file is not one of this node's.
func (h *hosts) parse(text []byte) bool {
	h.lines, h.size = map[string]*hostsLine{}, int64(len(text))
	rest, ok := bytes.CutPrefix(text, []byte(hostsHead))
	at := int64(len(hostsHead))
	for len(rest) > 0 && ok {
		var line, address, name []byte
		if line, rest, ok = bytes.Cut(rest, []byte("\n")); !ok {
			return false // cut off, when the machine went down
		}
		address, name, ok = bytes.Cut(line, []byte("\t"))
		ok = ok && len(address) > 0 && string(address[1:]) == h.node.String()[1:]
		if ok {
			h.lines[string(name)] = &hostsLine{at: at, gone: address[0] == '#'}
		}
		at += int64(len(line)) + 1
	}
	return ok
}

// line is a name's.
func (h *hosts) line(name string) string { return h.node.String() + "\t" + name + "\n" }

// set says which names there are.
func (h *hosts) set(names []string) error {
	if h.size > hostsMost {
		if err := h.empty(); err != nil { // a program that reads now may miss a name
			return err
		}
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening the sandboxes' hosts file: %w", err)
	}
	if err := errors.Join(h.change(f, names), f.Close()); err != nil {
		return fmt.Errorf("writing the sandboxes' hosts file: %w", err)
	}
	return nil
}

func (h *hosts) change(f io.WriterAt, names []string) error {
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for name, l := range h.lines {
		if l.gone != there[name] {
			continue
		}
		first := h.node.String()[:1]
		if !l.gone {
			first = "#"
		}
		if _, err := f.WriteAt([]byte(first), l.at); err != nil {
			return err
		}
		l.gone = !l.gone
	}
	var more bytes.Buffer
	added := map[string]*hostsLine{}
	for _, name := range names {
		if h.lines[name] == nil && added[name] == nil {
			added[name] = &hostsLine{at: h.size + int64(more.Len())}
			more.WriteString(h.line(name))
		}
	}
	if _, err := f.WriteAt(more.Bytes(), h.size); err != nil {
		return err
	}
	maps.Copy(h.lines, added)
	h.size += int64(more.Len())
	return nil
}

// empty leaves no names in the file, in place.
func (h *hosts) empty() error {
	if err := os.WriteFile(h.path, []byte(hostsHead), 0o644); err != nil {
		return fmt.Errorf("writing the sandboxes' hosts file: %w", err)
	}
	h.parse([]byte(hostsHead))
	return nil
}
