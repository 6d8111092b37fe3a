package trigger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Fields of an entry with a meaning of their own. All others are extension attributes.
const (
	fieldData        = "data"
	fieldContentType = "datacontenttype"
	fieldType        = "type"
)

const (
	specVersion = "1.0"
	// defaultType is the event type of entries that say none.
	defaultType = "dev.headstart.stream.entry"
	jsonType    = "application/json"
	// attributePrefix begins the attributes' headers (CloudEvents' HTTP protocol binding,
	// section 3.1.3.1).
	attributePrefix = "ce-"

	// attributeMost bounds one attribute, in bytes: an object's key of reference.MaxKeyBytes
	// fits a subject. attributesMost and attributesBytes bound them together: servers take
	// headers of 16 KiB at least, of which an encoded byte needs three.
	attributeMost   = 2 * reference.MaxKeyBytes
	attributesMost  = 32
	attributesBytes = 4 << 10
	// contentTypeMost is longer than any sensible media type.
	contentTypeMost = 256
)

// attributeName is what CloudEvents allows (section "Naming conventions" of the
// specification, which asks for 20 characters at most).
var attributeName = regexp.MustCompile(`^[a-z0-9]{1,20}$`)

// reserved are attributes that are the stream's to say, not the entry's.
var reserved = []string{"id", "source", "specversion", "time"}

// event is an entry as a CloudEvent 1.0.
type event struct {
	// attributes are by their names, without prefix and not encoded.
	attributes  map[string]string
	contentType string // empty: unknown
	body        []byte
}

// newEvent makes an event of an entry of the stream that source names. Fields become
// attributes where they can be. If all have become one but data, that is the body; else
// the body is a JSON object of all fields, so that nothing is lost.
func newEvent(source string, e Entry) event {
	ev := event{attributes: map[string]string{"id": e.ID, "source": source, "specversion": specVersion, "type": defaultType}}
	if at, ok := timeOf(e.ID); ok {
		ev.attributes["time"] = at.Format("2006-01-02T15:04:05.000Z07:00")
	}
	whole, room := true, attributesBytes
	for i, name := range slices.Sorted(maps.Keys(e.Fields)) {
		value := e.Fields[name]
		switch {
		case name == fieldData:
		case name == fieldContentType && isMediaType(value):
			ev.contentType = value
		case name != fieldContentType && i < attributesMost && len(value) <= room && isAttribute(name, value):
			ev.attributes[name] = value
			room -= len(value)
		default:
			whole = false
		}
	}
	if whole {
		ev.body = []byte(e.Fields[fieldData])
		return ev
	}
	ev.contentType, ev.body = jsonType, asJSON(e.Fields)
	return ev
}

func isAttribute(name, value string) bool {
	return attributeName.MatchString(name) && !slices.Contains(reserved, name) &&
		value != "" && len(value) <= attributeMost && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl)
}

func isMediaType(s string) bool {
	if len(s) > contentTypeMost || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return false
	}
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(kind, "/")
}

// timeOf is when an entry was put into its stream, as its id says.
func timeOf(id string) (time.Time, bool) {
	ms, _, ok := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	// The year 9999 is the last that RFC 3339 can write.
	if at := time.UnixMilli(n).UTC(); ok && err == nil && n >= 0 && at.Year() <= 9999 {
		return at, true
	}
	return time.Time{}, false
}

// asJSON is an object of all fields. What is no text is in base64, under its name and the
// suffix that CloudEvents' own JSON has for it.
func asJSON(fields map[string]string) []byte {
	object := make(map[string]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if value := fields[name]; utf8.ValidString(value) {
			object[name] = value
		} else {
			object[name+"_base64"] = base64.StdEncoding.EncodeToString([]byte(value))
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(object) // of a map of strings it cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// header is the event's in binary mode.
func (ev event) header() http.Header {
	h := make(http.Header, len(ev.attributes)+1)
	for name, value := range ev.attributes {
		h.Set(attributePrefix+name, encoded(value))
	}
	if ev.contentType != "" {
		h.Set("Content-Type", ev.contentType)
	}
	return h
}

// encoded writes an attribute for a header: what is not printable ASCII, and space, quote
// and percent sign, are percent-encoded (section 3.1.3.2 of the binding).
func encoded(value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// inputs are the references that templates make of the event. The templates
// see attributes as they were written: what a gateway would have to decode is not encoded. An
// event has neither path nor query.
func (ev event) inputs(t reference.Templates) (reference.Inputs, error) {
	return t.Expand(reference.Request{Target: "/", Plain: true, Header: func(header string) []string {
		value, ok := ev.contentType, header == "content-type" && ev.contentType != ""
		if name, is := strings.CutPrefix(header, attributePrefix); is {
			value, ok = ev.attributes[name]
		}
		if !ok {
			return nil
		}
		return []string{value}
	}})
}
