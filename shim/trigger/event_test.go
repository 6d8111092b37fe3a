package trigger_test

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/trigger"
)

const (
	source  = "redis://cameras/frames"
	entryID = "1700000000123-7"
)

// common is what every event has.
func common(h http.Header) http.Header {
	for name, value := range map[string]string{"Ce-Id": entryID, "Ce-Source": source, "Ce-Specversion": "1.0", "Ce-Time": "2023-11-14T22:13:20.123Z", "Ce-Type": "dev.headstart.stream.entry"} {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
	return h
}

func TestAnEntryIsACloudEvent(t *testing.T) {
	for name, test := range map[string]struct {
		fields map[string]string
		header http.Header
		body   string
	}{
		"nothing": {nil, http.Header{}, ""},
		"data":    {map[string]string{"data": "x\x00\xff"}, http.Header{}, "x\x00\xff"},
		"all that has a meaning": {
			map[string]string{"data": "{}", "datacontenttype": "application/json; charset=utf-8", "type": "com.example.frame", "subject": "camera-7/1.mjpeg", "dataschema": "http://example.com/schema"},
			http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Ce-Type": {"com.example.frame"}, "Ce-Subject": {"camera-7/1.mjpeg"}, "Ce-Dataschema": {"http://example.com/schema"}}, "{}",
		},
		"a subject alone": {map[string]string{"subject": "a"}, http.Header{"Ce-Subject": {"a"}}, ""},
		"extensions":      {map[string]string{"data": "x", "camera7": "north"}, http.Header{"Ce-Camera7": {"north"}}, "x"},
		"encoded":         {map[string]string{"subject": "a b\"%ä€"}, http.Header{"Ce-Subject": {"a%20b%22%25%C3%A4%E2%82%AC"}}, ""},
		"a trace":         {map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, http.Header{"Ce-Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}, ""},
		// What cannot be an attribute makes JSON of all, and what can still is one.
		"a name of upper case":   {map[string]string{"cameraId": "7", "subject": "a", "data": "<x>"}, http.Header{"Content-Type": {"application/json"}, "Ce-Subject": {"a"}}, `{"cameraId":"7","data":"<x>","subject":"a"}`},
		"a reserved name":        {map[string]string{"id": "7"}, http.Header{"Content-Type": {"application/json"}}, `{"id":"7"}`},
		"the stream's own":       {map[string]string{"source": "/etc", "specversion": "0.3", "time": "now"}, http.Header{"Content-Type": {"application/json"}}, `{"source":"/etc","specversion":"0.3","time":"now"}`},
		"an empty attribute":     {map[string]string{"subject": ""}, http.Header{"Content-Type": {"application/json"}}, `{"subject":""}`},
		"a line feed":            {map[string]string{"subject": "a\r\nx: y"}, http.Header{"Content-Type": {"application/json"}}, `{"subject":"a\r\nx: y"}`},
		"no UTF-8":               {map[string]string{"subject": "\xff"}, http.Header{"Content-Type": {"application/json"}}, `{"subject_base64":"/w=="}`},
		"no media type":          {map[string]string{"datacontenttype": "json", "data": "{}"}, http.Header{"Content-Type": {"application/json"}}, `{"data":"{}","datacontenttype":"json"}`},
		"a long name":            {map[string]string{strings.Repeat("a", 21): "x"}, http.Header{"Content-Type": {"application/json"}}, `{"aaaaaaaaaaaaaaaaaaaaa":"x"}`},
		"a long value":           {map[string]string{"subject": strings.Repeat("x", 2049)}, http.Header{"Content-Type": {"application/json"}}, `{"subject":"` + strings.Repeat("x", 2049) + `"}`},
		"headers of Headstart's": {map[string]string{"x-headstart-input": "s3://a/b"}, http.Header{"Content-Type": {"application/json"}}, `{"x-headstart-input":"s3://a/b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			header, body := trigger.Event(source, trigger.Entry{ID: entryID, Fields: test.fields})
			if d := cmp.Diff(common(test.header), header); d != "" {
				t.Errorf("header (-want +got):\n%s", d)
			}
			if d := cmp.Diff(test.body, string(body)); d != "" {
				t.Errorf("body (-want +got):\n%s", d)
			}
		})
	}
}

// The template sees what the entry says, not how a header has to write it.
func TestAnEntryNamesAnInput(t *testing.T) {
	template, err := reference.ParseTemplate("s3://videos/{header.ce-type}/{header.ce-subject}")
	if err != nil {
		t.Fatal(err)
	}
	got, err := trigger.Input(source, trigger.Entry{ID: entryID, Fields: map[string]string{"subject": "camera 7/ä%.mjpeg", "type": "frame"}}, template)
	if err != nil || got != "s3://videos/frame/camera 7/ä%.mjpeg" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := trigger.Input(source, trigger.Entry{ID: entryID, Fields: map[string]string{"subject": "../../etc"}}, template); err == nil {
		t.Error("a subject left its bucket")
	}
	if _, err := trigger.Input(source, trigger.Entry{ID: entryID}, template); err == nil {
		t.Error("there is a type, but no subject, and still an input")
	}
	// What a gateway brings encoded names the same.
	decoding, err := reference.ParseTemplate("s3://videos/{header.ce-subject|urldecode|trimprefix:objects/}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trigger.Input(
		source, trigger.Entry{ID: entryID, Fields: map[string]string{"subject": "objects/50%20 + x"}}, decoding,
	); got != "s3://videos/50%20 + x" || err != nil {
		t.Errorf("%q, %v: what was not encoded is decoded", got, err)
	}
	path, err := reference.ParseTemplate("/videos/{key} s3://videos/{path.key}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trigger.Input(
		source, trigger.Entry{ID: entryID, Fields: map[string]string{"subject": "a"}}, path,
	); got != "" || err != nil {
		t.Errorf("%q, %v: an entry has no path", got, err)
	}
	other, err := reference.ParseTemplate("s3://videos/{header.x-key}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trigger.Input(source, trigger.Entry{ID: entryID, Fields: map[string]string{"x-key": "a"}}, other); got != "" || err != nil {
		t.Errorf("%q, %v: an entry has no headers but its attributes", got, err)
	}
}

var fieldName = regexp.MustCompile(`^(Ce-[A-Za-z0-9]{1,20}|Content-Type)$`)

// Whatever an entry holds, its event is a request that can be sent, and nothing is lost.
func FuzzEvent(f *testing.F) {
	f.Add("1700000000123-7", "subject", "a b", "data", "\xff", "text/plain")
	f.Add("", "ID", "", "time", "\r\n", "a")
	f.Add("99999999999999999-0", "x_base64", "\xff", "x", "\x00", "application/json;")
	f.Fuzz(func(t *testing.T, id, name, value, second, other, kind string) {
		fields := map[string]string{name: value, second: other, "datacontenttype": kind}
		header, body := trigger.Event(source, trigger.Entry{ID: id, Fields: fields})
		for name, values := range header {
			if len(values) != 1 || !fieldName.MatchString(name) {
				t.Errorf("header %q: %q", name, values)
			}
			if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }) && name != "Ce-Id" {
				t.Errorf("header %s: %q", name, values[0])
			}
		}
		if at := header.Get("Ce-Time"); at != "" {
			if _, err := time.Parse(time.RFC3339, at); err != nil {
				t.Error(err)
			}
		}
		for name, value := range fields {
			attribute, err := url.PathUnescape(header.Get("Ce-" + name))
			has := err == nil && attribute == value
			if name == "datacontenttype" {
				kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
				has = err == nil && kind != "" && header.Get("Content-Type") == value
			}
			if has || name == "data" && string(body) == value {
				continue
			}
			var object map[string]string
			if err := json.Unmarshal(body, &object); err != nil || header.Get("Content-Type") != "application/json" {
				t.Fatalf("field %q is neither in %v nor in %q", name, header, body)
			}
			if got, ok := object[name]; utf8.ValidString(name) && utf8.ValidString(value) && (!ok || got != value && object[name] == "") {
				t.Errorf("field %q is %q in %q", name, got, body)
			}
		}
	})
}
