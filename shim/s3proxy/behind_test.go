package s3proxy

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// Check values of the CRC catalogue: of the digits 1 to 9.
func TestSums(t *testing.T) {
	for name, want := range map[string]string{"X-Amz-Checksum-Crc32": "cbf43926", "X-Amz-Checksum-Crc32c": "e3069283",
		"X-Amz-Checksum-Crc64nvme": "ae8b14860a799888"} {
		h := sums[name]()
		h.Write([]byte("123456789"))
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if len(sums) != 3 {
		t.Errorf("%d are tested", 3)
	}
}

// A list is as before, without the nodes' own.
func TestHide(t *testing.T) {
	const head = `<?xml version="1.0"?>` + "\n" + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Prefix>.headstart/</Prefix>`
	for name, in := range map[string]struct{ list, want string }{
		"objects": {head + `<KeyCount>3</KeyCount><Contents><Key>a</Key></Contents><Contents><Size>1</Size><Key>.headstart/pending/a</Key></Contents><Contents><Key>b</Key></Contents></ListBucketResult>`,
			head + `<KeyCount>2</KeyCount><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></ListBucketResult>`},
		"the number comes last": {head + `<Contents><Key>.headstart/x</Key></Contents><KeyCount>1</KeyCount></ListBucketResult>`,
			head + `<KeyCount>0</KeyCount></ListBucketResult>`},
		"prefixes": {`<L><CommonPrefixes><Prefix>.headstart/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></L>`,
			`<L><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></L>`},
		"escaped":   {`<L><Contents><Key>%2Eheadstart%2Fx</Key></Contents><Contents><Key>100%</Key></Contents></L>`, `<L><Contents><Key>100%</Key></Contents></L>`},
		"an entity": {`<L><Version><Key>&#46;headstart/x</Key></Version></L>`, `<L></L>`},
		"like them": {`<L><Contents><Key>x/.headstart/y</Key></Contents><Contents><Key>.headstarts</Key></Contents></L>`, ""},
		"a path":    {`<L><Contents><Key>a/..//.headstart/y</Key></Contents></L>`, `<L></L>`},
		"an owner":  {`<L><Contents><Key>a</Key><Owner><Key>.headstart/</Key></Owner></Contents></L>`, ""},
		"no list":   {`<html><p>.headstart/`, ""},
		"no XML":    {`</L>.headstart/`, ""},
		"no end":    {`<L><Contents><Key>a</Key></Contents>`, ""},
		"no start":  {`<L></L></L>`, ""},
	} {
		if in.want == "" && !strings.HasPrefix(name, "no ") {
			in.want = in.list
		}
		got, err := hide([]byte(in.list), func([]writeback.Upload) (map[writeback.Upload]bool, error) {
			return nil, errors.New("it lists no uploads")
		})
		if d := cmp.Diff(in.want, string(got)); d != "" || (err != nil) != strings.HasPrefix(name, "no ") {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}

// Of uploads those that are the nodes' own are left out, and a page still says where the next one begins.
func TestHideUploads(t *testing.T) {
	const page = `<ListMultipartUploadsResult><KeyMarker></KeyMarker><UploadIdMarker></UploadIdMarker>` +
		`<NextKeyMarker>a b</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker><IsTruncated>true</IsTruncated>` +
		`%s<Upload><Key>a b</Key><UploadId>2</UploadId></Upload>%s` +
		`<CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes></ListMultipartUploadsResult>`
	one := "<Upload><Key>a+b</Key><Initiator><ID>x</ID></Initiator><UploadId>1</UploadId></Upload>"
	other := "<Upload><UploadId>&lt;3</UploadId><Key>k</Key></Upload>"
	own := map[writeback.Upload]bool{{Key: "a b", ID: "1"}: true, {Key: "k", ID: "<3"}: true, {Key: "c/", ID: ""}: true}
	wrong := error(nil)
	uploads := func([]writeback.Upload) (map[writeback.Upload]bool, error) { return own, wrong }
	got, err := hide(fmt.Appendf(nil, page, one, other), uploads)
	if d := cmp.Diff(fmt.Sprintf(page, "", ""), string(got)); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	wrong = errors.New("the store does not say")
	if got, err := hide(fmt.Appendf(nil, page, one, other), uploads); !errors.Is(err, wrong) {
		t.Errorf("%s, %v", got, err)
	}
}

// Whatever a store sends, what is left is a part of it.
func FuzzHide(f *testing.F) {
	f.Add([]byte(`<L><KeyCount>1</KeyCount><Contents><Key>.headstart/x</Key></Contents></L>`))
	f.Add([]byte(`<A><KeyCount>0<Key>.headstart</A></A></A>`))
	f.Add([]byte(`<L><Upload><Key>k</Key><UploadId>u</UploadId></Upload><Upload><UploadId/><Key>k</Key></Upload></L>`))
	f.Add([]byte(`<L><KeyCount>1</KeyCount></KeyCount><Contents><Key><![CDATA[.headstart/]]></Key></Contents>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		own := func(all []writeback.Upload) (map[writeback.Upload]bool, error) {
			return map[writeback.Upload]bool{{Key: "k", ID: "u"}: true}, nil
		}
		left, err := hide(bytes.Clone(b), own)
		if err != nil {
			return
		}
		if len(left) > len(b)+20 {
			t.Errorf("%q becomes %q", b, left)
		}
		if again, err := hide(bytes.Clone(left), own); !bytes.Contains(b, []byte("KeyCount")) && !bytes.Equal(again, left) {
			t.Errorf("%q has more to hide: %q, %v", left, again, err)
		}
	})
}

// What a PUT says of its object is kept, and nothing of the request.
func TestWhatIsSaidOfAnObject(t *testing.T) {
	r, err := http.NewRequest(http.MethodPut, "/data/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{}
	for _, line := range strings.Split(`Authorization: AWS4
Amz-Sdk-Request: attempt=1
Cache-Control: max-age=3
Content-Encoding: gzip,aws-chunked
Content-Md5: AAAA
Content-Type: text/x
Expect: 100-continue
If-None-Match: *
User-Agent: boto3
X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER
X-Amz-Date: 20260101T000000Z
X-Amz-Decoded-Content-Length: 3
X-Amz-Meta-Camera: 7
X-Amz-Sdk-Checksum-Algorithm: CRC32
X-Amz-Security-Token: x
X-Amz-Storage-Class: STANDARD_IA
X-Amz-Trailer: x-amz-checksum-crc32`, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	want := http.Header{"Cache-Control": {"max-age=3"}, "Content-Encoding": {"gzip"}, "Content-Type": {"text/x"}, "If-None-Match": {"*"},
		"X-Amz-Meta-Camera": {"7"}, "X-Amz-Storage-Class": {"STANDARD_IA"}, "X-Amz-Checksum-Crc32": {""}}
	got := (&request{Request: r, signed: &sigv4.Signed{ContentSHA256: trailing}}).described()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
