package s3proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
)

// parsed is what a request asks for, and the code if that is refused.
func parsed(t *testing.T, r *http.Request) (Operation, string) {
	t.Helper()
	var op Operation
	query, err := parameters(r, false)
	if err == nil {
		op, err = parse(r, query)
	}
	if err == nil {
		return op, ""
	}
	e, is := errors.AsType[*refusal](err)
	if !is {
		t.Fatalf("%s %s: %v is not in the words of S3", r.Method, r.URL, err)
	}
	return op, e.code
}

// line is a request by its first line, and the lines of its header.
func line(first string, header ...string) *http.Request {
	method, target, _ := strings.Cut(first, " ")
	r := httptest.NewRequest(method, target, nil)
	for _, h := range header {
		if name, value, has := strings.Cut(h, ": "); has {
			r.Header.Add(name, value)
		}
	}
	return r
}

// What boto3 sends is recognised.
func TestOperationsOfBoto3(t *testing.T) {
	const from, page = "x-amz-copy-source: archive/x", "&prefix=a%2F&delimiter=%2F&encoding-type=url"
	for _, in := range []struct{ first, header, name string }{
		{"GET /", "", "ListBuckets"},
		{"GET /?prefix=d&max-buckets=5&continuation-token=t&bucket-region=r", "", "ListBuckets"},
		{"GET /data/a/b", "", "GetObject"},
		{"GET /data/a/b", "range: bytes=0-1", "GetObject"},
		{"GET /data/a/b?versionId=1&partNumber=2", "", "GetObject"},
		{"GET /data/a/b?response-content-type=x&response-expires=y", "", "GetObject"},
		{"HEAD /data/a/b", "", "HeadObject"},
		{"HEAD /data/a/b?versionId=1", "", "HeadObject"},
		{"GET /data/a/b?attributes", "x-amz-object-attributes: ETag", "GetObjectAttributes"},
		{"GET /data/a/b?tagging", "", "GetObjectTagging"},
		{"GET /data/a/b?uploadId=u&max-parts=5&part-number-marker=1", "", "ListParts"},
		{"PUT /data/a/b", "", "PutObject"},
		{"PUT /data/a/b", "content-type: text/plain", "PutObject"},
		{"PUT /data/a/b?tagging", "", "PutObjectTagging"},
		{"PUT /data/a/b?uploadId=u&partNumber=1", "", "UploadPart"},
		{"PUT /data/a/b?uploadId=u&partNumber=1", from, "UploadPartCopy"},
		{"PUT /data/a/b", from, "CopyObject"},
		{"POST /data/a/b?uploads", "", "CreateMultipartUpload"},
		{"POST /data/a/b?uploadId=u", "", "CompleteMultipartUpload"},
		{"DELETE /data/a/b?uploadId=u", "", "AbortMultipartUpload"},
		{"DELETE /data/a/b", "", "DeleteObject"},
		{"DELETE /data/a/b?versionId=1", "", "DeleteObject"},
		{"DELETE /data/a/b?tagging&versionId=1", "", "DeleteObjectTagging"},
		{"GET /data?list-type=2&max-keys=5" + page, "", "ListObjectsV2"},
		{"GET /data?list-type=2&continuation-token=t&start-after=s&fetch-owner=true", "", "ListObjectsV2"},
		{"GET /data?versions&key-marker=k&version-id-marker=v" + page, "", "ListObjectVersions"},
		{"GET /data?uploads&max-uploads=5&key-marker=k&upload-id-marker=u" + page, "", "ListMultipartUploads"},
		{"GET /data?marker=m&max-keys=5" + page, "", "ListObjects"},
		{"GET /data", "", "ListObjects"},
		{"GET /data/", "", "ListObjects"},
		{"GET /data?location", "", "GetBucketLocation"},
		{"GET /data?versioning", "", "GetBucketVersioning"},
		{"HEAD /data", "", "HeadBucket"},
		{"POST /data?delete", "", "DeleteObjects"},
	} {
		want := wanted(in.name, "a/b")
		got, code := parsed(t, line(in.first, in.header))
		if d := cmp.Diff(want, got); d != "" || code != "" {
			t.Errorf("%s: %s (-want +got):\n%s", in.first, code, d)
		}
	}
}

// wanted is an operation by its name, of a key in bucket data, and from bucket archive if it copies.
func wanted(name, key string) Operation {
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	if i < 0 {
		return Operation{Name: name}
	}
	op := Operation{Name: name, Bucket: "data", Writes: operations[i].writes}
	if operations[i].object {
		op.Key = key
	}
	if operations[i].copies {
		op.From, op.FromKey = "archive", "x"
	}
	return op
}

// sent is a client of the Go SDK whose requests do not leave it.
type sent struct {
	client *sdk.Client
	last   *http.Request
}

var errSent = errors.New("it is sent nowhere")

// Do implements sdk.HTTPClient.
func (s *sent) Do(r *http.Request) (*http.Response, error) {
	s.last = r
	return nil, errSent
}

func newSent() *sent {
	s := &sent{}
	s.client = sdk.New(sdk.Options{Region: testRegion, BaseEndpoint: aws.String("http://127.0.0.1:1"), HTTPClient: s,
		Credentials:        credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer:            aws.NopRetryer{},
		UseARNRegion:       true,
		EndpointResolverV2: sdk.NewDefaultEndpointResolverV2(), DisableS3ExpressSessionAuth: aws.Bool(true)})
	return s
}

// incoming is the last request, as a server gets it.
func (s *sent) incoming() *http.Request {
	r := httptest.NewRequest(s.last.Method, s.last.URL.RequestURI(), nil)
	r.Header = s.last.Header
	return r
}

// What the Go SDK sends is recognised.
func TestOperationsOfTheGoSDK(t *testing.T) {
	s := newSent()
	c, ctx := s.client, t.Context()
	bucket, key, id, from := aws.String("data"), aws.String("a/b c"), aws.String("u+/="), aws.String("archive/x")
	one, at := aws.Int32(1), aws.Time(time.Unix(0, 0))
	url := types.EncodingTypeUrl
	seen := map[string]bool{}
	for name, call := range map[string]func() (any, error){
		"GetObject": func() (any, error) {
			return c.GetObject(ctx, &sdk.GetObjectInput{Bucket: bucket, Key: key, VersionId: id, PartNumber: one,
				ResponseCacheControl: id, ResponseContentDisposition: id, ResponseContentEncoding: id,
				ResponseContentLanguage: id, ResponseContentType: id, ResponseExpires: at,
				Range: aws.String("bytes=0-1"), ChecksumMode: types.ChecksumModeEnabled})
		},
		"HeadObject": func() (any, error) {
			return c.HeadObject(ctx, &sdk.HeadObjectInput{Bucket: bucket, Key: key, VersionId: id, PartNumber: one,
				ResponseCacheControl: id, ResponseContentDisposition: id, ResponseContentEncoding: id,
				ResponseContentLanguage: id, ResponseContentType: id, ResponseExpires: at})
		},
		"GetObjectAttributes": func() (any, error) {
			return c.GetObjectAttributes(ctx, &sdk.GetObjectAttributesInput{Bucket: bucket, Key: key, VersionId: id,
				ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesEtag}, MaxParts: one,
				PartNumberMarker: id})
		},
		"GetObjectTagging": func() (any, error) {
			return c.GetObjectTagging(ctx, &sdk.GetObjectTaggingInput{Bucket: bucket, Key: key, VersionId: id})
		},
		"ListParts": func() (any, error) {
			return c.ListParts(ctx, &sdk.ListPartsInput{Bucket: bucket, Key: key, UploadId: id, MaxParts: one,
				PartNumberMarker: id})
		},
		"CopyObject": func() (any, error) {
			return c.CopyObject(ctx, &sdk.CopyObjectInput{Bucket: bucket, Key: key, CopySource: from})
		},
		"PutObject": func() (any, error) {
			return c.PutObject(ctx, &sdk.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x"),
				ACL: types.ObjectCannedACLPrivate, IfNoneMatch: aws.String("*"), Tagging: aws.String("a=b")})
		},
		"UploadPartCopy": func() (any, error) {
			return c.UploadPartCopy(ctx, &sdk.UploadPartCopyInput{Bucket: bucket, Key: key, UploadId: id,
				PartNumber: one, CopySource: from})
		},
		"UploadPart": func() (any, error) {
			return c.UploadPart(ctx, &sdk.UploadPartInput{Bucket: bucket, Key: key, UploadId: id, PartNumber: one,
				Body: strings.NewReader("x")})
		},
		"PutObjectTagging": func() (any, error) {
			return c.PutObjectTagging(ctx, &sdk.PutObjectTaggingInput{Bucket: bucket, Key: key, VersionId: id,
				Tagging: &types.Tagging{TagSet: []types.Tag{}}})
		},
		"CreateMultipartUpload": func() (any, error) {
			return c.CreateMultipartUpload(ctx, &sdk.CreateMultipartUploadInput{Bucket: bucket, Key: key})
		},
		"CompleteMultipartUpload": func() (any, error) {
			return c.CompleteMultipartUpload(ctx, &sdk.CompleteMultipartUploadInput{Bucket: bucket, Key: key,
				UploadId: id, MultipartUpload: &types.CompletedMultipartUpload{}})
		},
		"AbortMultipartUpload": func() (any, error) {
			return c.AbortMultipartUpload(ctx, &sdk.AbortMultipartUploadInput{Bucket: bucket, Key: key, UploadId: id})
		},
		"DeleteObjectTagging": func() (any, error) {
			return c.DeleteObjectTagging(ctx, &sdk.DeleteObjectTaggingInput{Bucket: bucket, Key: key, VersionId: id})
		},
		"DeleteObject": func() (any, error) {
			return c.DeleteObject(ctx, &sdk.DeleteObjectInput{Bucket: bucket, Key: key, VersionId: id})
		},
		"ListObjectsV2": func() (any, error) {
			return c.ListObjectsV2(ctx, &sdk.ListObjectsV2Input{Bucket: bucket, Prefix: id, Delimiter: id, MaxKeys: one,
				ContinuationToken: id, StartAfter: id, FetchOwner: aws.Bool(true), EncodingType: url})
		},
		"ListObjectVersions": func() (any, error) {
			return c.ListObjectVersions(ctx, &sdk.ListObjectVersionsInput{Bucket: bucket, Prefix: id, Delimiter: id,
				MaxKeys: one, KeyMarker: id, VersionIdMarker: id, EncodingType: url})
		},
		"ListMultipartUploads": func() (any, error) {
			return c.ListMultipartUploads(ctx, &sdk.ListMultipartUploadsInput{Bucket: bucket, Prefix: id, Delimiter: id,
				MaxUploads: one, KeyMarker: id, UploadIdMarker: id, EncodingType: url})
		},
		"GetBucketLocation": func() (any, error) {
			return c.GetBucketLocation(ctx, &sdk.GetBucketLocationInput{Bucket: bucket})
		},
		"GetBucketVersioning": func() (any, error) {
			return c.GetBucketVersioning(ctx, &sdk.GetBucketVersioningInput{Bucket: bucket})
		},
		"ListObjects": func() (any, error) {
			return c.ListObjects(ctx, &sdk.ListObjectsInput{Bucket: bucket, Prefix: id, Delimiter: id, MaxKeys: one,
				Marker: id, EncodingType: url})
		},
		"HeadBucket": func() (any, error) { return c.HeadBucket(ctx, &sdk.HeadBucketInput{Bucket: bucket}) },
		"DeleteObjects": func() (any, error) {
			return c.DeleteObjects(ctx, &sdk.DeleteObjectsInput{Bucket: bucket,
				Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: key}}}})
		},
	} {
		if _, err := call(); !errors.Is(err, errSent) {
			t.Fatalf("%s: %v", name, err)
		}
		got, code := parsed(t, s.incoming())
		if d := cmp.Diff(wanted(name, *key), got); d != "" || code != "" {
			t.Errorf("%s %s: %s (-want +got):\n%s", s.last.Method, s.last.URL, code, d)
		}
		seen[name] = true
	}
	for _, o := range operations {
		if !seen[o.name] {
			t.Errorf("%s is tested by nothing", o.name)
		}
	}
	if _, err := c.ListBuckets(ctx, &sdk.ListBucketsInput{MaxBuckets: one, Prefix: id}); !errors.Is(err, errSent) {
		t.Fatal(err)
	}
	if got, code := parsed(t, s.incoming()); got.Name != "ListBuckets" || code != "" {
		t.Errorf("ListBuckets: %+v, %s", got, code)
	}
}

// fill gives each field of an input something.
func fill(v reflect.Value, depth int) {
	if !v.CanSet() || depth > 20 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.String:
		v.SetString("x")
		if v.Type() == reflect.TypeFor[types.ChecksumAlgorithm]() {
			v.SetString(string(types.ChecksumAlgorithmCrc32))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Interface:
		for _, one := range []any{strings.NewReader("x"), &types.ObjectEncryptionMemberSSEKMS{}} {
			if filled := reflect.ValueOf(one); filled.Type().Implements(v.Type()) {
				v.Set(filled)
				fill(filled.Elem(), depth+1)
				break
			}
		}
	case reflect.Struct:
		if _, is := v.Interface().(time.Time); is {
			v.Set(reflect.ValueOf(time.Unix(0, 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}

// All else that S3 has, as the SDK has it, is not for functions.
func TestOtherOperationsAreNotImplemented(t *testing.T) {
	s := newSent()
	client := reflect.ValueOf(s.client)
	tried := 0
	for i := range client.NumMethod() {
		name, call := client.Type().Method(i).Name, client.Method(i)
		known := slices.ContainsFunc(operations, func(o operation) bool { return o.name == name })
		if known || name == "ListBuckets" || call.Type().NumIn() != 3 {
			continue
		}
		tried++
		input := reflect.New(call.Type().In(1).Elem())
		fill(input.Elem(), 0)
		if bucket := input.Elem().FieldByName("Bucket"); bucket.IsValid() {
			bucket.Set(reflect.ValueOf(aws.String("data")))
		}
		s.last = nil
		out := call.Call([]reflect.Value{reflect.ValueOf(context.Background()), input})
		if err, _ := out[1].Interface().(error); s.last == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, code := parsed(t, s.incoming()); code != "NotImplemented" {
			t.Errorf("%s (%s %s): %+v, %q", name, s.last.Method, s.last.URL.RequestURI(), got, code)
		}
	}
	if tried < 70 {
		t.Errorf("only %d operations were tried", tried)
	}
}

// Each subresource is refused with each method, but for what functions can do.
func TestSubresources(t *testing.T) {
	can := []string{"GET /data/k?attributes", "GET /data/k?tagging", "PUT /data/k?tagging", "DELETE /data/k?tagging",
		"POST /data/k?uploads", "GET /data/k?uploadId", "POST /data/k?uploadId", "DELETE /data/k?uploadId",
		"GET /data?location", "GET /data?versioning", "GET /data?versions", "GET /data?uploads", "GET /data?list-type",
		"POST /data?delete"}
	subresources := []string{"", "ACL", "Tagging", "abac", "accelerate", "acl", "analytics", "append", "attributes",
		"cors", "delete", "encryption", "intelligent-tiering", "inventory", "legal-hold", "lifecycle", "list-type",
		"location", "logging", "metadataConfiguration", "metadataInventoryTable", "metadataJournalTable",
		"metadataTable", "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
		"publicAccessBlock",
		"renameObject", "replication", "requestPayment", "restore", "retention", "select", "session", "tagging",
		"torrent", "uploadId", "uploads", "versioning", "versions", "website", "x"}
	seen := 0
	for _, sub := range subresources {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "get"} {
			for _, path := range []string{"/data", "/data/k", "/"} {
				first := method + " " + path + "?" + sub
				if sub == "" {
					first = method + " " + path + "?=x"
				}
				got, code := parsed(t, line(first))
				if slices.Contains(can, first) {
					if seen++; code != "" {
						t.Errorf("%s: %s", first, code)
					}
				} else if code != "NotImplemented" {
					t.Errorf("%s: %+v, %q", first, got, code)
				}
			}
		}
	}
	if seen != len(can) {
		t.Errorf("%d of %d operations were tried", seen, len(can))
	}
}

// Whatever is not one operation of one object or bucket is refused.
func TestParseRefuses(t *testing.T) {
	const copying = "x-amz-copy-source: archive/x"
	for _, in := range []struct{ first, header, code string }{
		// of the whole store
		{"PUT /", "", "NotImplemented"}, {"HEAD /", "", "NotImplemented"}, {"GET //data/k", "", "NotImplemented"},
		{"GET //", "", "NotImplemented"}, {"GET /?events", "", "NotImplemented"}, {"GET /", copying, "NotImplemented"},
		{"GET /?prefix=a&acl", "", "NotImplemented"}, {"POST /?Action=x", "", "NotImplemented"},
		// of a bucket, the last being a form
		{"PUT /data", "", "NotImplemented"}, {"DELETE /data", "", "NotImplemented"},
		{"OPTIONS /data", "", "NotImplemented"}, {"POST /data", "", "NotImplemented"},
		{"POST /data/k", "", "NotImplemented"}, {"POST /data/k?delete", "", "NotImplemented"},
		// parameters
		{"GET /data/k?unknown", "", "NotImplemented"}, {"GET /data/k?versionid=1", "", "NotImplemented"},
		{"GET /data/k?tagging&acl", "", "NotImplemented"}, {"GET /data/k?uploadId=1&tagging", "", "NotImplemented"},
		{"GET /data?list-type=2&versions", "", "NotImplemented"}, {"GET /data?location&prefix=a", "", "NotImplemented"},
		{"PUT /data/k?versionId=1", "", "NotImplemented"}, {"PUT /data/k?partNumber=1", "", "NotImplemented"},
		{"PUT /data/k?uploadId=1", "", "NotImplemented"}, {"POST /data/k?uploads&uploadId=1", "", "NotImplemented"},
		{"DELETE /data/k?uploadId=1&versionId=", "", "NotImplemented"},
		// repeated parameters, of which the store may take another one
		{"GET /data/k?versionId=1&versionId=2", "", "NotImplemented"},
		{"GET /data/k?x-id=GetObject&x-id=PutObject", "", "NotImplemented"},
		{"PUT /data/k?partNumber=1&uploadId=a&uploadId=b", "", "NotImplemented"},
		{"PUT /data/k?partNumber=1&partNumber=2&uploadId=", "", "NotImplemented"},
		{"GET /data?list-type=2&prefix=a&prefix=b", "", "NotImplemented"},
		// copies
		{"GET /data/k", copying, "NotImplemented"}, {"DELETE /data/k", copying, "NotImplemented"},
		{"PUT /data/k?tagging", copying, "NotImplemented"}, {"POST /data/k?uploads", copying, "NotImplemented"},
		{"PUT /data/k?uploadId=1&partNumber=1", "x-amz-copy-source: archive", "InvalidArgument"},
		// paths that the store could take apart elsewhere
		{"GET /data%2Fk", "", "InvalidURI"}, {"GET /%64ata/k", "", "InvalidURI"}, {"GET /data%00/k", "", "InvalidURI"},
		{"PUT /data%2Foperator/k", "", "InvalidURI"},
		// or resolve
		{"GET /data/..", "", "InvalidURI"}, {"GET /data/../operator/k", "", "InvalidURI"},
		{"GET /data/a/../../operator", "", "InvalidURI"}, {"GET /data//../operator/k", "", "InvalidURI"},
		{"PUT /data/./../operator/k", "", "InvalidURI"}, {"GET /data/%2E%2E/operator", "", "InvalidURI"},
		{"PUT /data/..%2Foperator%2F", "", "InvalidURI"},
		// ids that stores could take for paths
		{"PUT /data/k?partNumber=1&uploadId=../../../../operator", "", "InvalidArgument"},
		{"DELETE /data/k?uploadId=..", "", "InvalidArgument"}, {"DELETE /data/k?uploadId=.", "", "InvalidArgument"},
		{"GET /data/k?uploadId=a%2F..%2F..%2Fb", "", "InvalidArgument"},
		{"POST /data/k?uploadId=%2e%2e%2Foperator", "", "InvalidArgument"},
		{"GET /data/k?versionId=..%2F..%2Foperator%2Fin", "", "InvalidArgument"},
		{"DELETE /data/k?versionId=..", "", "InvalidArgument"},
		{"PUT /data/k", "x-amz-copy-source: archive/x?versionId=../../operator/in", "InvalidArgument"},
		{"PUT /data/k", "x-amz-copy-source: archive/x?versionId=%2e%2e", "InvalidArgument"},
		{"PUT /data/k", "x-amz-copy-source: archive/x?versionId=1&versionId=..", "InvalidArgument"},
		{"PUT /data/k", "x-amz-copy-source: archive/x?versionId=%zz", "InvalidArgument"},
	} {
		if got, code := parsed(t, line(in.first, in.header)); code != in.code {
			t.Errorf("%s: %+v, %q", in.first, got, code)
		}
	}
}

// Bucket and key are those of the path, whatever is in it.
func TestKeys(t *testing.T) {
	for path, key := range map[string]string{
		"/data/k": "k", "/data/a/b": "a/b", "/data/a/": "a/", "/data//a": "/a", "/data/a//b": "a//b",
		"/data/a%2Fb": "a/b", "/data/a%20b+c": "a b+c", "/data/100%25": "100%", "/data/%2541": "%41",
		"/data/a%3Fb%23c": "a?b#c", "/data/a;b=c": "a;b=c", "/data/a&b": "a&b", "/data/%C3%A4": "ä", "/data/ä": "ä",
		"/data/%FF%00": "\xff\x00", "/data/.": ".", "/data/a/../b": "a/../b", "/data/.../a": ".../a",
		"/data/..a": "..a", "/data/a:b": "a:b", "/data/%0D%0AX": "\r\nX", "/data/archive/in": "archive/in",
		"/data/_headstart/credentials": "_headstart/credentials",
	} {
		got, code := parsed(t, line("GET "+path))
		if code != "" || got.Bucket != "data" || got.Key != key {
			t.Errorf("%s: %+v, %s", path, got, code)
		}
	}
}

// The bucket that a copy is made from is found however its source is spelled.
func TestCopySources(t *testing.T) {
	for _, in := range []struct {
		from   []string
		bucket string // empty: it is refused
	}{
		{[]string{"archive/x"}, "archive"},
		{[]string{"/archive/x"}, "archive"},
		{[]string{"archive/a/b/c"}, "archive"},
		{[]string{"archive//x"}, "archive"},
		{[]string{"archive/x?versionId=1"}, "archive"},
		{[]string{"archive/x?versionId=a..b/c..%2F..."}, "archive"},
		{[]string{"/archive/x?versionId=a/b"}, "archive"},
		{[]string{"archive/x%3FversionId=1"}, "archive"},
		{[]string{"archive%2Fx"}, "archive"},
		{[]string{"%2Farchive%2Fx"}, ""},
		{[]string{"%61rchive/x"}, "archive"},
		{[]string{"archive/%C3%A4+b%20c"}, "archive"},
		{[]string{"archive/100%"}, ""},
		{[]string{"%2561rchive/x"}, "%61rchive"}, // which no store lists
		{[]string{"archive/a/../x"}, "archive"},
		{[]string{"archive/../operator/x"}, ""},
		{[]string{"archive/%2e%2e/operator/x"}, ""},
		{[]string{"archive/a/../../operator/x"}, ""},
		{[]string{"archive"}, ""},
		{[]string{"archive/"}, ""},
		{[]string{"/archive"}, ""},
		{[]string{"/"}, ""},
		{[]string{"//archive/x"}, ""},
		{[]string{"?versionId=1"}, ""},
		{[]string{"archive?versionId=1/x"}, ""},
		{[]string{""}, ""},
		{[]string{"arn:aws:s3:eu-central-1:123456789012:accesspoint/mine/object/x"}, ""},
		{[]string{"arn%3Aaws%3As3%3A%3A%3Aarchive/x"}, ""},
		{[]string{"arn:aws:s3-outposts:eu-central-1:1:outpost/o/object/x"}, ""},
		{[]string{"http://archive/x"}, ""},
		// The store may take another one than the node.
		{[]string{"archive/x", "operator/x"}, ""},
		{[]string{"", "operator/x"}, ""},
	} {
		r := line("PUT /data/k")
		r.Header["X-Amz-Copy-Source"] = in.from
		got, code := parsed(t, r)
		want := ""
		if in.bucket == "" {
			want = "InvalidArgument"
		}
		if code != want || code == "" && (got.From != in.bucket || got.Name != "CopyObject") {
			t.Errorf("%q: %+v, %q", in.from, got, code)
		}
	}
}

// Functions give nobody access, and lock nothing.
func TestPrivileges(t *testing.T) {
	writing := []string{"PUT /data/k", "POST /data/k?uploads", "DELETE /data/k", "PUT /data/k?tagging",
		"POST /data?delete"}
	for _, name := range privileges {
		for _, values := range [][]string{{"x"}, {"", "x"}, {"x", ""}} {
			for _, first := range writing {
				r := line(first)
				r.Header[name] = values
				if _, code := parsed(t, r); code != "AccessDenied" {
					t.Errorf("%s with %s %q: %q", first, name, values, code)
				}
			}
		}
	}
	for _, in := range []struct {
		acl  []string
		code string
	}{
		{nil, ""}, {[]string{""}, ""}, {[]string{"private"}, ""}, {[]string{"bucket-owner-full-control"}, ""},
		{[]string{"private", "private"}, ""},
		{[]string{"public-read"}, "AccessDenied"}, {[]string{"public-read-write"}, "AccessDenied"},
		{[]string{"authenticated-read"}, "AccessDenied"}, {[]string{"PRIVATE"}, "AccessDenied"},
		{[]string{"private,public-read"}, "AccessDenied"}, {[]string{"private", "public-read"}, "AccessDenied"},
		{[]string{"", "public-read"}, "AccessDenied"},
	} {
		r := line("PUT /data/k")
		if in.acl != nil {
			r.Header["X-Amz-Acl"] = in.acl
		}
		if _, code := parsed(t, r); code != in.code {
			t.Errorf("x-amz-acl %q: %q", in.acl, code)
		}
	}
}

// The names of headers that are looked at are those that a server has.
func TestHeadersAreCanonical(t *testing.T) {
	for _, names := range [][]string{hops, privileges, elsewhere, ownKeys} {
		for _, name := range names {
			if name != http.CanonicalHeaderKey(name) {
				t.Errorf("no server has a header %s", name)
			}
		}
	}
	for name := range trailers {
		if name != http.CanonicalHeaderKey(name) {
			t.Errorf("no server has a trailer %s", name)
		}
	}
}

// FuzzParse holds what is recognised against what the store is going to get.
func FuzzParse(f *testing.F) {
	for _, seed := range []struct{ method, target, from string }{
		{"GET", "/data/k", ""}, {"GET", "/data?list-type=2&prefix=a;b", ""}, {"PUT", "/data/k", "archive/x"},
		{"PUT", "/data/k?partNumber=1&uploadId=u", "/archive/x?versionId=1"}, {"DELETE", "/data/k?tagging;", ""},
		{"GET", "//data/k", ""}, {"GET", "/data%2Fk", ""}, {"HEAD", "/data/../operator", ""}, {"GET", "*", ""},
		{"POST", "/data?delete", ""}, {"PUT", "/data/k", "archive/%2e%2e/x"}, {"GET", "http://x/data/k", ""},
		{"GET", "/?x-id=ListBuckets", ""}, {"PUT", "/data/k?x-amz-copy-source=archive%2Fx", ""},
		{"DELETE", "/data/k?uploadId=..%2F", ""}, {"PUT", "/data/k", "archive/x?versionId=.."},
	} {
		f.Add(seed.method, seed.target, seed.from, len(seed.from) == 0)
	}
	f.Fuzz(func(t *testing.T, method, target, from string, presigned bool) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{Method: method, URL: u, Header: http.Header{}}
		if from != "" {
			r.Header.Set("X-Amz-Copy-Source", from)
		}
		var op Operation
		query, err := parameters(r, presigned)
		if err == nil {
			op, err = parse(r, query)
		}
		if err != nil {
			if _, is := errors.AsType[*refusal](err); !is {
				t.Fatalf("%v is not in the words of S3", err)
			}
			return
		}
		copies := len(r.Header["X-Amz-Copy-Source"]) > 0
		switch {
		case op.Name == "":
			t.Error("it has no name")
		case !op.Writes && method != http.MethodGet && method != http.MethodHead:
			t.Errorf("%s does not write, with %s", op.Name, method)
		case strings.Contains(op.Bucket, "/"):
			t.Errorf("bucket %q", op.Bucket)
		case (op.From == "") == copies, strings.Contains(op.From, "/"):
			t.Errorf("copied from %q, as %q says", op.From, r.Header["X-Amz-Copy-Source"])
		case leaves(op.Key), dotted(query.Get("uploadId")), dotted(query.Get("versionId")):
			t.Errorf("it leads out of the bucket: %+v", op)
		case op.Bucket == "":
			if op.Name != "ListBuckets" || op.Key != "" {
				t.Errorf("of no bucket: %+v", op)
			}
			return
		}
		// The store takes apart what is escaped.
		bucket, key, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
		if plain, err := url.PathUnescape(key); err != nil || bucket != op.Bucket || plain != op.Key {
			t.Errorf("%q and %q are taken for %+v", bucket, key, op)
		}
	})
}
