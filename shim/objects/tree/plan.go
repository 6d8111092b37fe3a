package tree

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// maxObjects and maxNames bound a volume: how many objects it has, and how many bytes their names have
	// together. All of it is in memory while a version is made.
	maxObjects = 1 << 17
	maxNames   = 32 << 20
	// maxSegment and maxPath are the kernel's NAME_MAX and the longest key of S3, in bytes.
	maxSegment = 255
	maxPath    = 1024
)

// plan is what a version of a volume is made of.
type plan struct {
	// id is the version's name: the digest of all that it holds.
	id string
	// directories are in an order in which they can be made, and files in that of their names.
	directories []string
	files       []Object
}

// tooLarge is said of a volume with more than a node takes.
func tooLarge(of Prefix) error {
	return problem.New(http.StatusRequestEntityTooLarge, "VolumeTooLarge", filterapi.AnnotationVolumes, fmt.Sprintf(
		"%s has more than %d objects or directories, or names of more than %d MiB; "+
			"name a prefix with fewer, or put them into one object", of.Prefix, maxObjects, maxNames>>20))
}

// planOf makes a plan of all objects of a prefix. Each has to be a file: one that cannot be refuses the volume, since a
// program would find a part of it.
func planOf(of Prefix, objects []Object) (plan, error) {
	var p plan
	isDirectory := map[string]bool{}
	for _, o := range objects {
		name, marker := strings.CutSuffix(o.Name, "/")
		if o.Name == "" || o.Name == "/" {
			name, marker = "", true
		}
		why := unusable(name)
		switch {
		case marker && o.Size != 0:
			why = "ends with a slash and has content"
		case marker && o.Name == "": // the prefix itself, as consoles make it
			continue
		}
		if why != "" {
			return plan{}, unusableKey(of, o.Name, why)
		}
		if directory := path.Dir(name); marker {
			isDirectory[name] = true
		} else {
			isDirectory[directory] = true
			p.files = append(p.files, o)
		}
	}
	for directory := range isDirectory {
		for above := path.Dir(directory); above != "." && !isDirectory[above]; above = path.Dir(above) {
			if isDirectory[above] = true; len(isDirectory) > maxObjects {
				return plan{}, tooLarge(of)
			}
		}
	}
	delete(isDirectory, ".")
	slices.SortFunc(p.files, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
	for i, o := range p.files {
		if isDirectory[o.Name] {
			return plan{}, unusableKey(of, o.Name, "is also a prefix of other keys")
		}
		if i > 0 && o.Name == p.files[i-1].Name {
			return plan{}, unusableKey(of, o.Name, "is listed twice")
		}
	}
	for directory := range isDirectory {
		p.directories = append(p.directories, directory)
	}
	slices.Sort(p.directories) // what is above is shorter, and so comes before
	p.id = p.digest(of)
	return p, nil
}

// digest covers what the version is of, and all that is in it. No name has a NUL in it.
func (p plan) digest(of Prefix) string {
	h := sha256.New()
	add := func(fields ...string) {
		for _, f := range fields {
			h.Write([]byte(f))
			h.Write([]byte{0})
		}
	}
	add(of.Store, of.Prefix.String())
	add(p.directories...)
	add("")
	for _, o := range p.files {
		add(o.Name, strconv.FormatInt(o.Size, 10), o.Version)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unusable says why a key cannot be a path; empty if it can.
func unusable(name string) string {
	if len(name) > maxPath {
		return fmt.Sprintf("is longer than %d bytes", maxPath)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return "has an empty segment"
		case segment == "." || segment == "..":
			return fmt.Sprintf("has the segment %q", segment)
		case len(segment) > maxSegment:
			return fmt.Sprintf("has a segment of more than %d bytes", maxSegment)
		case strings.ContainsRune(segment, 0):
			return "has a NUL"
		}
	}
	return ""
}

func unusableKey(of Prefix, name, why string) error {
	return problem.New(http.StatusUnprocessableEntity, "VolumeKeyUnusable", filterapi.AnnotationVolumes, fmt.Sprintf(
		"the key %.200q below %s cannot be a file: it %s; rename the object, or name a prefix without it",
		name, of.Prefix, why))
}
