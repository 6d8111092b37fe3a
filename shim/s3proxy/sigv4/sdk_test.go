package sigv4_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

const sdkToken = "FwoGZXIvYXdzEXAMPLE//token+of=a session"

// drawn is a request that the AWS SDK's signer has signed, as it is sent.
func drawn(t *rapid.T) (raw, token string, signedAt time.Time) {
	text := func(name string) string { return rapid.StringN(0, 12, -1).Draw(t, name) }
	segment := rapid.OneOf(rapid.StringN(0, 8, -1), rapid.SampledFrom([]string{"", ".", "..", "%2F", "+"}))
	segments := rapid.SliceOfN(segment, 0, 4).Draw(t, "path")
	body := rapid.StringN(0, -1, 200).Draw(t, "body")
	query := url.Values{}
	names := rapid.SampledFrom([]string{"acl", "a", "a-b", "prefix", "list-type", "ü"})
	for _, name := range rapid.SliceOfNDistinct(names, 0, 4, rapid.ID).Draw(t, "query") {
		query.Set(name, text("value"))
	}
	u := &url.URL{Scheme: "https", Host: "s3.example.com:9000", RawQuery: query.Encode()}
	u.Path = "/b/" + strings.Join(segments, "/")
	for i, s := range segments { // the S3 client encodes paths like this
		segments[i] = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(s))
	}
	u.RawPath = "/b/" + strings.Join(segments, "/")
	method := rapid.SampledFrom([]string{"GET", "PUT", "POST", "DELETE", "HEAD"}).Draw(t, "method")
	r, err := http.NewRequest(method, u.String(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,20}`), 0, 4).Draw(t, "headers") {
		r.Header.Add("X-Amz-Meta-"+strconv.Itoa(i/2), value)
	}
	if rapid.Bool().Draw(t, "session") {
		token = sdkToken
	}
	payload := rapid.SampledFrom([]string{"UNSIGNED-PAYLOAD", hashOf(body)}).Draw(t, "payload")
	signedAt = time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "time"), 0)
	by := aws.Credentials{AccessKeyID: exampleID, SecretAccessKey: exampleSecret, SessionToken: token}
	region := rapid.SampledFrom([]string{"us-east-1", "eu-central-1", "mars"}).Draw(t, "region")
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	r.Header.Set("X-Amz-Content-Sha256", payload)
	if rapid.Bool().Draw(t, "presigned") {
		r.Header.Set("X-Amz-Request-Payer", "requester") // goes to the query
		r.URL.RawQuery += "&X-Amz-Expires=" + strconv.Itoa(rapid.IntRange(1, 604800).Draw(t, "life"))
		signed, headers, err := signer.PresignHTTP(t.Context(), by, r, payload, "s3", region, signedAt)
		if err != nil {
			t.Fatal(err)
		}
		if r.URL, err = url.Parse(signed); err != nil {
			t.Fatal(err)
		}
		r.Header = headers
	} else if err := signer.SignHTTP(t.Context(), by, r, payload, "s3", region, signedAt); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String(), token, signedAt
}

// What the SDK's signer signs is right, after net/http has sent and read it; and a bit that changes on the way does
// not go through.
func TestTheSDKsSignerAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, token, at := drawn(t)
		keys := func(id string) (string, string, bool) { return exampleSecret, token, id == exampleID }
		want, err := meaning(raw, at, keys)
		if err != nil {
			t.Fatalf("%v: %q", err, raw)
		}
		for range 20 {
			bit := rapid.IntRange(0, 8*len(raw)-1).Draw(t, "bit")
			changed := []byte(raw)
			changed[bit/8] ^= 1 << (bit % 8)
			if got, err := meaning(string(changed), at, keys); err == nil && got != want {
				// Nobody has signed the content of an UNSIGNED-PAYLOAD.
				if strings.Contains(want, "UNSIGNED-PAYLOAD") && bit/8 >= strings.Index(raw, "\r\n\r\n")+4 {
					continue
				}
				t.Errorf("%q\nis accepted as %q\nand not as %q", changed, got, want)
			}
		}
	})
}

// stored is what a server of S3 has been sent.
type stored struct {
	method, path, body string
	trailer            http.Header
	kind               string
	presigned          bool
}

// served verifies all requests as a server does, and answers as S3.
func served(t *testing.T, tls bool) (*httptest.Server, func() stored) {
	got := make(chan stored, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := sigv4.Verify(r, time.Now(), func(id string) (string, string, bool) {
			return exampleSecret, sdkToken, id == exampleID
		})
		if err == nil {
			p := s.Body(r.Body)
			var body []byte
			if body, err = io.ReadAll(p); err == nil {
				got <- stored{r.Method, r.URL.Path, string(body), p.Trailer(), s.ContentSHA256, s.Presigned}
				return
			}
		}
		var e *sigv4.Error
		if !errors.As(err, &e) {
			t.Error(err)
			return
		}
		w.WriteHeader(e.Status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", e.Code, e.Message)
	}))
	if tls {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, func() stored { return <-got }
}

func clientOf(server *httptest.Server, secret string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(server.URL), UsePathStyle: true, Region: "eu-central-1", HTTPClient: server.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(exampleID, secret, sdkToken), RetryMaxAttempts: 1,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported, // as SDKs have it by default
	})
}

// The SDK's S3 client reaches all keys, with and without TLS, and has them presigned.
func TestTheSDKsClient(t *testing.T) {
	keys := []string{"odd key/ü +&=%20.bin", "a//b", "./x", "a/../b", "%2F", "!'()*;:@$,?#[]", "/", "~-_."}
	bucket := aws.String("b")
	for _, tls := range []bool{false, true} {
		server, sent := served(t, tls)
		c := clientOf(server, exampleSecret)
		for _, key := range keys {
			for _, body := range []string{"", strings.Repeat("content ", 20000)} {
				if _, err := c.PutObject(t.Context(), &s3.PutObjectInput{
					Bucket: bucket, Key: &key, Body: strings.NewReader(body),
					Metadata: map[string]string{"a": " b  c "},
				}); err != nil {
					t.Fatalf("%q: %v", key, err)
				}
				got := sent()
				chunked := tls && body != ""
				if got.path != "/b/"+key || got.body != body || chunked != (got.kind == unsignedTrailer) ||
					chunked != (len(got.trailer) == 1) {
					t.Errorf("%q was sent as %q: %d bytes, %s, %v", key, got.path, len(got.body), got.kind, got.trailer)
				}
			}
			if _, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: &key}); err != nil {
				t.Errorf("%q: %v", key, err)
			}
			sent()
			presigned, err := s3.NewPresignClient(c).PresignPutObject(t.Context(), &s3.PutObjectInput{
				Bucket: bucket, Key: &key, ACL: types.ObjectCannedACLPrivate, Metadata: map[string]string{"a": "b"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if status := send(t, server.Client(), presigned, "content"); status != http.StatusOK {
				t.Fatalf("%q presigned: %d", key, status)
			}
			if got := sent(); got.path != "/b/"+key || got.body != "content" || !got.presigned {
				t.Errorf("%q was presigned as %+v", key, got)
			}
		}
		if _, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
			Bucket: bucket, Prefix: aws.String("odd key/ü +&=%20;"), Delimiter: aws.String("/"),
		}); err != nil {
			t.Error(err)
		}
		sent()
		other := clientOf(server, "another")
		_, err := other.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: aws.String("k")})
		if err == nil || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
			t.Errorf("with another secret: %v", err)
		}
	}
}

func send(t *testing.T, c *http.Client, signed *v4.PresignedHTTPRequest, body string) int {
	r, err := http.NewRequestWithContext(t.Context(), signed.Method, signed.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = signed.SignedHeader.Clone()
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
