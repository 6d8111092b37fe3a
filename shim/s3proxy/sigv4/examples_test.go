package sigv4_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// The examples of the Amazon S3 API Reference have these.
const (
	exampleID     = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	exampleScope  = exampleID + "/20130524/us-east-1/s3/aws4_request"
	ofNothing     = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

func exampleKeys(id string) (secret, token string, ok bool) {
	return exampleSecret, "", id == exampleID
}

// parse reads a request as a server does.
func parse(raw string) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
}

func parsed(t *testing.T, raw string) *http.Request {
	t.Helper()
	r, err := parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines are a request's, without the newlines.
func lines(s ...string) string { return strings.Join(s, "\r\n") + "\r\n\r\n" }

func authorization(signedHeaders, signature string) string {
	return "Authorization: AWS4-HMAC-SHA256 Credential=" + exampleScope + ",SignedHeaders=" + signedHeaders +
		",Signature=" + signature
}

const (
	exampleHost = "Host: examplebucket.s3.amazonaws.com"
	exampleDate = "x-amz-date: 20130524T000000Z"
)

// exampleGet is "Example: GET Object".
var exampleGet = lines(
	"GET /test.txt HTTP/1.1", exampleHost, authorization("host;range;x-amz-content-sha256;x-amz-date",
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
	"Range: bytes=0-9", "x-amz-content-sha256: "+ofNothing, exampleDate)

// examplePut is "Example: PUT Object". The page leaves out Content-Length.
var examplePut = lines(
	"PUT /test$file.text HTTP/1.1", exampleHost, "Date: Fri, 24 May 2013 00:00:00 GMT",
	authorization("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"), exampleDate,
	"x-amz-storage-class: REDUCED_REDUNDANCY", "Content-Length: 21",
	"x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
) + "Welcome to Amazon S3."

// examplePresigned is the example of "Authenticating Requests: Using Query Parameters".
var examplePresigned = lines("GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+
	strings.ReplaceAll(exampleScope, "/", "%2F")+"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"+
	"X-Amz-SignedHeaders=host"+
	"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1",
	exampleHost)

// exampleChunked is "Example: PUT Object" of "Transferring Payload in Multiple Chunks".
var exampleChunked = lines(
	"PUT /examplebucket/chunkObject.txt HTTP/1.1", "Host: s3.amazonaws.com", exampleDate,
	"x-amz-storage-class: REDUCED_REDUNDANCY", authorization("content-encoding;content-length;host;"+
		"x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
		"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"),
	"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "Content-Encoding: aws-chunked",
	"x-amz-decoded-content-length: 66560", "Content-Length: 66824",
) + "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" +
	strings.Repeat("a", 65536) + "\r\n" +
	"400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" +
	strings.Repeat("a", 1024) + "\r\n" +
	"0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"

// exampleTrailer is the example of "Signature calculations for trailing headers". The page does not say how many bytes
// there are.
var exampleTrailer = lines(
	"PUT /examplebucket/chunkObject.txt HTTP/1.1", "Host: s3.amazonaws.com", exampleDate,
	"x-amz-storage-class: REDUCED_REDUNDANCY", authorization("content-encoding;host;x-amz-content-sha256;x-amz-date;"+
		"x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
		"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"),
	"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "Content-Encoding: aws-chunked",
	"x-amz-decoded-content-length: 66560", "x-amz-trailer: x-amz-checksum-crc32c", "Content-Length: 66946",
) + "10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n" +
	strings.Repeat("a", 65536) + "\r\n" +
	"400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n" +
	strings.Repeat("a", 1024) + "\r\n" +
	"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n" +
	"x-amz-checksum-crc32c:sOO8/Q==\r\n" +
	"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"

// The examples of the Amazon S3 API Reference are right.
func TestExamples(t *testing.T) {
	list := func(query, signature string) string {
		return lines("GET /?"+query+" HTTP/1.1", exampleHost,
			authorization("host;x-amz-content-sha256;x-amz-date", signature), exampleDate,
			"x-amz-content-sha256:"+ofNothing)
	}
	for name, c := range map[string]struct {
		request, kind, want string
		presigned           bool
		trailer             http.Header
	}{
		"GET object": {request: exampleGet, kind: ofNothing},
		"PUT object": {
			request: examplePut, want: "Welcome to Amazon S3.",
			kind: "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		},
		"GET bucket lifecycle": {
			kind:    ofNothing,
			request: list("lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
		},
		"GET bucket (list objects)": {
			kind:    ofNothing,
			request: list("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
		},
		"the same, in another order": {
			kind: ofNothing,
			request: list("&prefix=%4A&&max-keys=2",
				"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
		},
		"presigned URL": {request: examplePresigned, kind: "UNSIGNED-PAYLOAD", presigned: true},
		"multiple chunks": {
			request: exampleChunked, kind: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
			want: strings.Repeat("a", 66560), trailer: http.Header{},
		},
		"trailing headers": {
			request: exampleTrailer, kind: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
			want: strings.Repeat("a", 66560), trailer: http.Header{"X-Amz-Checksum-Crc32c": {"sOO8/Q=="}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := parsed(t, c.request)
			before := r.Header.Clone()
			s, err := sigv4.Verify(r, exampleTime, exampleKeys)
			if err != nil {
				t.Fatal(err)
			}
			if s.AccessKeyID != exampleID || s.Region != "us-east-1" || s.Presigned != c.presigned ||
				s.ContentSHA256 != c.kind || s.DecodedLength != int64(len(c.want)) {
				t.Errorf("it is signed by %+v", s)
			}
			p := s.Body(r.Body)
			if got, err := io.ReadAll(p); err != nil || !bytes.Equal(got, []byte(c.want)) {
				t.Errorf("the payload is %d bytes, %v", len(got), err)
			}
			if d := cmp.Diff(c.trailer, p.Trailer()); d != "" {
				t.Errorf("the trailers (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, r.Header); d != "" {
				t.Errorf("the request's headers were changed (-want +got):\n%s", d)
			}
		})
	}
}
