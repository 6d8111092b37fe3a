package reference

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxVolumes is how many volumes a pod may have: as many as a request has named inputs.
	MaxVolumes = MaxNamed
	// MaxVolumesBytes bounds the list of them, in bytes.
	MaxVolumesBytes = 2 * MaxTemplateBytes
)

// Volume is a prefix of a bucket: a sandbox sees the objects below it as files, by the volume's name.
type Volume struct {
	Name string
	// Prefix has a Key that is empty, for the whole bucket, or ends with a slash.
	Prefix Reference
}

// String is the form that ParseVolumes reads.
func (v Volume) String() string { return v.Name + "=" + v.Prefix.String() }

// volumeNames are labels of the DNS (RFC 1123, section 2.1), as the names of a pod's own volumes are.
var volumeNames = Names{
	Shortest: 1, Longest: 63, inside: "a-z0-9-", ends: "a-z0-9", words: "a-z, 0-9 and -",
}

// IsVolumeName tells whether a volume can have the name.
func IsVolumeName(name string) bool { return volumeNames.Problem(name) == "" }

// VolumePattern is a regular expression (RE2) that each volume of a list matches as a whole. CEL has
// what is refused beyond that, by the same words.
func VolumePattern() string {
	return volumeNames.Pattern() + "=" + S3 + "://" + S3Buckets.Pattern() + `/([^/,{}\p{Cc}]+/)*`
}

// What is said of volumes that are none, in Go and in CEL.
const (
	VolumesLong   = "is too long"
	VolumesForm   = "is not a list of volumes: <name>=s3://<bucket>/<prefix>/, separated by commas"
	VolumesTwice  = "has a name twice"
	VolumesBucket = "has a bucket whose name is reserved, looks like an IP address, or has two dots in a row"
	VolumesDots   = `has the path segment "." or ".."`
	// VolumesOther is said of the other kinds of stores: a URL and a Redis have no list of what is below a prefix.
	VolumesOther = "names a store that has no lists of objects: volumes are read from s3:// alone"
)

// VolumesMany is said of too many.
var VolumesMany = fmt.Sprintf("has more than %d volumes", MaxVolumes)

// VolumesOtherPattern is a regular expression (RE2) of lists with another kind of store.
func VolumesOtherPattern() string {
	var others []string
	for _, k := range kinds {
		if k.Scheme != S3 {
			others = append(others, k.Scheme)
		}
	}
	return "=(" + strings.Join(others, "|") + ")://"
}

// ParseVolumes reads volumes with commas between.
func ParseVolumes(s string) ([]Volume, error) {
	if len(s) > MaxVolumesBytes {
		return nil, errors.New(VolumesLong)
	}
	items := strings.Split(s, ",")
	if len(items) > MaxVolumes {
		return nil, errors.New(VolumesMany)
	}
	volumes := make([]Volume, 0, len(items))
	for _, item := range items {
		v, err := parseVolume(item)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(volumes, func(o Volume) bool { return o.Name == v.Name }) {
			return nil, errors.New(VolumesTwice)
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func parseVolume(s string) (Volume, error) {
	name, prefix, _ := strings.Cut(s, "=")
	k, rest, ok := cutKind(prefix)
	bucket, key, slash := strings.Cut(rest, "/")
	switch {
	case ok && k.Scheme != S3:
		return Volume{}, errors.New(VolumesOther)
	case !ok || !slash || !IsVolumeName(name) || !utf8.ValidString(key) || strings.ContainsAny(key, "{}"),
		key != "" && (!strings.HasSuffix(key, "/") || key[0] == '/' || strings.Contains(key, "//")):
		return Volume{}, errors.New(VolumesForm)
	}
	if p := k.Bucket.Problem(bucket); p != "" {
		return Volume{}, errors.New("has a bucket that " + p)
	}
	if key != "" {
		if p := keyProblem(key); p != "" {
			return Volume{}, errors.New("has a prefix that " + p)
		}
	}
	return Volume{name, Reference{Scheme: S3, Bucket: bucket, Key: key}}, nil
}
