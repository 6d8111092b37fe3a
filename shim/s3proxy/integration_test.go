//go:build integration

package s3proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is an SDK's as its environment says.
func client(t *testing.T, env []string) *sdk.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	from := aws.CredentialsProvider(credentials.NewStaticCredentialsProvider(s3proxytest.Get(env, "AWS_ACCESS_KEY_ID"),
		s3proxytest.Get(env, "AWS_SECRET_ACCESS_KEY"), ""))
	if at := s3proxytest.Get(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI"); at != "" {
		from = endpointcreds.New(at, func(o *endpointcreds.Options) {
			o.AuthorizationToken = s3proxytest.Get(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN")
			o.HTTPClient = &http.Client{Transport: transport}
		})
	}
	return sdk.New(sdk.Options{Region: s3proxytest.Get(env, "AWS_REGION"), Credentials: aws.NewCredentialsCache(from),
		BaseEndpoint: aws.String(s3proxytest.Get(env, "AWS_ENDPOINT_URL_S3")), HTTPClient: &http.Client{Transport: transport}})
}

func content(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func put(t *testing.T, c *sdk.Client, bucket, key string, b []byte) {
	t.Helper()
	if _, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(b),
		Metadata: map[string]string{"camera": "7"}}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *sdk.Client, bucket, key string) (*sdk.GetObjectOutput, []byte) {
	t.Helper()
	out, err := c.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return out, b
}

// methods are those of requests.
func methods(asked []string) (all []string) {
	for _, r := range asked {
		method, _, _ := strings.Cut(r, " ")
		all = append(all, method)
	}
	slices.Sort(all)
	return all
}

// What the node has read once comes from the node: the store is asked whether it is still the same.
func TestASecondReadComesFromTheNode(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{})
	direct, c := client(t, store.Env()), client(t, node.Pod("default", "a", ""))
	want := content(5 << 20)
	put(t, direct, s3proxytest.ReadOnly, "in", want)
	for i := range 3 {
		out, got := get(t, c, s3proxytest.ReadOnly, "in")
		if !bytes.Equal(got, want) || out.Metadata["camera"] != "7" || aws.ToString(out.ETag) == "" {
			t.Fatalf("read %d: %d bytes, %v", i, len(got), out.Metadata)
		}
		asked := store.Asked()
		if i > 0 && len(asked) != 1 {
			t.Errorf("read %d: the store was asked for %q", i, asked)
		}
	}
	put(t, direct, s3proxytest.ReadOnly, "in", want[:100])
	if _, got := get(t, c, s3proxytest.ReadOnly, "in"); len(got) != 100 {
		t.Errorf("after another has written: %d bytes", len(got))
	}
}

// What a program writes the store has, and the node as well: the next read needs no transfer.
func TestWhatIsWrittenIsThere(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Fresh: "1h"})
	direct, c := client(t, store.Env()), client(t, node.Pod("default", "a", ""))
	want := content(3 << 20)
	for round, b := range [][]byte{want, want[:1<<20]} {
		put(t, c, s3proxytest.Bucket, "out/1", b)
		store.Asked()
		out, got := get(t, c, s3proxytest.Bucket, "out/1")
		if !bytes.Equal(got, b) || out.Metadata["camera"] != "7" {
			t.Errorf("round %d: %d bytes, %v", round, len(got), out.Metadata)
		}
		if asked := methods(store.Asked()); slices.Contains(asked, http.MethodGet) {
			t.Errorf("round %d: the store was asked for %q", round, asked)
		}
		if _, got := get(t, direct, s3proxytest.Bucket, "out/1"); !bytes.Equal(got, b) {
			t.Errorf("round %d: the store has %d bytes", round, len(got))
		}
	}
	if _, err := c.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("out/1")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("out/1")}); err == nil {
		t.Error("what was removed is read")
	}
}

// What is stored in parts is there as a whole, too.
func TestWhatIsWrittenInPartsIsThere(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{})
	c := client(t, node.Pod("default", "a", ""))
	bucket, key, want := aws.String(s3proxytest.Bucket), aws.String("out/parts"), content(12<<20)
	begun, err := c.CreateMultipartUpload(t.Context(), &sdk.CreateMultipartUploadInput{Bucket: bucket, Key: key,
		Metadata: map[string]string{"camera": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	var parts []types.CompletedPart
	for i, b := range [][]byte{want[:5<<20], want[5<<20 : 10<<20], want[10<<20:]} {
		number := aws.Int32(int32(i + 1))
		for _, content := range [][]byte{b[:100], b} { // a part may be sent again
			p, err := c.UploadPart(t.Context(), &sdk.UploadPartInput{Bucket: bucket, Key: key, UploadId: begun.UploadId, PartNumber: number, Body: bytes.NewReader(content)})
			if err != nil {
				t.Fatal(err)
			}
			if len(content) == len(b) {
				parts = append(parts, types.CompletedPart{PartNumber: number, ETag: p.ETag})
			}
		}
	}
	_, err = c.CompleteMultipartUpload(t.Context(), &sdk.CompleteMultipartUploadInput{Bucket: bucket, Key: key, UploadId: begun.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	if err != nil {
		t.Fatal(err)
	}
	store.Asked()
	out, got := get(t, c, s3proxytest.Bucket, "out/parts")
	if !bytes.Equal(got, want) || out.Metadata["camera"] != "7" {
		t.Errorf("%d bytes, %v", len(got), out.Metadata)
	}
	asked := methods(store.Asked())
	if way := node.Ways(); way[objects.WayRevalidated] != 1 || way[objects.WayStore] != 0 {
		t.Errorf("ways %v, asked %q", way, asked)
	}
}

// Nobody but the program gets anything by the endpoint, and the program nothing that the operator has not said.
func TestAttacksOnS3(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{})
	env, others := node.Pod("default", "a", ""), node.Pod("media", "b", "")
	direct, c := client(t, store.Env()), client(t, env)
	put(t, direct, s3proxytest.Bucket, "in", []byte("secret"))
	put(t, direct, s3proxytest.Hidden, "in", []byte("secret"))
	base, token := s3proxytest.Get(env, "AWS_ENDPOINT_URL_S3"), s3proxytest.Get(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN")
	plain := func(path, authorization string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK && bytes.Contains(b, []byte("secret")) {
			t.Errorf("%s: %s", path, b)
		}
		return res.StatusCode
	}
	store.Asked()
	for path, want := range map[string]int{"/data/in": 403, "/": 403, "/data?list-type=2": 403, "/_headstart/credentials": 401, "/data/../data/in": 403} {
		if got := plain(path, ""); got != want {
			t.Errorf("%s without a signature: %d", path, got)
		}
	}
	if got := plain("/_headstart/credentials", token); got != http.StatusOK {
		t.Errorf("credentials for the program: %d", got)
	}
	if got := plain("/_headstart/credentials", s3proxytest.Get(others, "AWS_CONTAINER_AUTHORIZATION_TOKEN")); got != http.StatusUnauthorized {
		t.Errorf("credentials for another sandbox: %d", got)
	}
	if asked := store.Asked(); len(asked) > 0 {
		t.Errorf("the store was asked for %q", asked)
	}
	mixed := slices.Clone(others) // another sandbox's credentials
	for i, v := range mixed {
		if strings.HasPrefix(v, "AWS_ENDPOINT_URL_S3=") {
			mixed[i] = "AWS_ENDPOINT_URL_S3=" + base
		}
	}
	forged := client(t, append(store.Env()[1:], "AWS_ENDPOINT_URL_S3="+base))
	bucket, key := aws.String(s3proxytest.Bucket), aws.String("in")
	for what, do := range map[string]func() error{
		"SignatureDoesNotMatch": func() error {
			_, err := client(t, mixed).GetObject(t.Context(), &sdk.GetObjectInput{Bucket: bucket, Key: aws.String("x")})
			return err
		},
		"InvalidAccessKeyId": func() error {
			_, err := forged.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: bucket, Key: key})
			return err
		},
		"does not list bucket operator": func() error {
			_, err := c.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Hidden), Key: key})
			return err
		},
		"does not list bucket": func() error {
			_, err := c.CopyObject(t.Context(), &sdk.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String(s3proxytest.Hidden + "/in")})
			return err
		},
		"only read bucket archive": func() error {
			_, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: aws.String(s3proxytest.ReadOnly), Key: key, Body: strings.NewReader("x")})
			return err
		},
		"NotImplemented": func() error {
			_, err := c.GetBucketPolicy(t.Context(), &sdk.GetBucketPolicyInput{Bucket: bucket})
			return err
		},
		"NotImplemented: ": func() error {
			_, err := c.DeleteBucket(t.Context(), &sdk.DeleteBucketInput{Bucket: bucket})
			return err
		},
		"x-amz-acl": func() error {
			_, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: aws.String("public"), Body: strings.NewReader("x"), ACL: types.ObjectCannedACLPublicRead})
			return err
		},
		"x-amz-grant-read": func() error {
			_, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: aws.String("public"), Body: strings.NewReader("x"), GrantRead: aws.String("id=1")})
			return err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(what, ": ")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	list, err := c.ListBuckets(t.Context(), &sdk.ListBucketsInput{})
	if err != nil || len(list.Buckets) != 2 {
		t.Errorf("buckets: %+v, %v", list, err)
	}
	if asked := store.Asked(); len(asked) > 0 {
		t.Errorf("the store was asked for %q", asked)
	}
}

// What a function reads for which requests is learned, and then there before the program asks.
func TestWhatIsLearnedIsThere(t *testing.T) {
	const function = "media/thumbs"
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{})
	direct := client(t, store.Env())
	put(t, direct, s3proxytest.Bucket, "model", content(1<<20))
	hits, requests := 0, 0
	for i := range 30 {
		key, pod := fmt.Sprintf("camera-%d/%d.jpg", i%3, i), fmt.Sprint("thumbs-", i)
		put(t, direct, s3proxytest.Bucket, key, content(100_000+i))
		end := node.Server.Foresee(function, s3proxytest.ID("media", pod), "/frames", http.Header{"X-Frame": {key}, "Authorization": {"Bearer x"}})
		c := client(t, node.Instance(function, pod))
		for _, key := range []string{"model", key} {
			get(t, c, s3proxytest.Bucket, key)
		}
		end() // and so the ways of what was fetched ahead are known
		ways := node.Ways()
		if i < 20 {
			continue
		}
		requests++
		if ways[objects.WayStore] == 1 && ways[objects.WayHit]+ways[objects.WayShared]+ways[objects.WayRevalidated] >= 2 {
			hits++
		} else {
			t.Logf("request %d: %v", i, ways)
		}
	}
	if hits < requests*9/10 {
		t.Errorf("%d of %d requests found their objects", hits, requests)
	}
	learned := node.Server.Learned(function)[function]
	if len(learned) == 0 || !learned[0].Proven {
		t.Errorf("learned: %+v", learned)
	}
}
