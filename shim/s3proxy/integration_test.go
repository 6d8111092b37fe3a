//go:build integration

package s3proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

// client is an SDK's as its environment says.
func client(t testing.TB, env []string) *sdk.Client {
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

func put(t testing.TB, c *sdk.Client, bucket, key string, b []byte) {
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

// attacked is a node with two sandboxes, and a store with secrets.
type attacked struct {
	t           *testing.T
	store       *s3proxytest.Store
	env, others []string
	c           *sdk.Client
}

func attack(t *testing.T) attacked {
	t.Helper()
	a := attacked{t: t, store: s3proxytest.StartStore(t)}
	node := s3proxytest.StartNode(t, a.store, s3proxytest.Options{})
	a.env, a.others = node.Pod("default", "a", ""), node.Pod("media", "b", "")
	a.c = client(t, a.env)
	direct := client(t, a.store.Env())
	for _, bucket := range []string{s3proxytest.Bucket, s3proxytest.ReadOnly, s3proxytest.Hidden} {
		put(t, direct, bucket, "in", []byte("secret"))
	}
	a.store.Asked()
	return a
}

// fails holds an attack against what the attacker is to be told, and against the store, which hears of none.
func (a attacked) fails(want string, err error) {
	a.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		a.t.Errorf("%v; want %s", err, want)
	}
	if asked := a.store.Asked(); len(asked) > 0 {
		a.t.Errorf("%s: the store was asked for %q", want, asked)
	}
}

// at returns an environment with the sandbox's endpoint.
func (a attacked) at(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "AWS_ENDPOINT_URL_S3=") })
	return append(env, "AWS_ENDPOINT_URL_S3="+s3proxytest.Get(a.env, "AWS_ENDPOINT_URL_S3"))
}

// get is a request of a program that was told a URL.
func (a attacked) get(path, authorization string) (status int, body []byte) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, s3proxytest.Get(a.env, "AWS_ENDPOINT_URL_S3")+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		a.t.Fatal(err)
	}
	return res.StatusCode, body
}

// A program is tricked into a request (SSRF): it gets neither objects nor credentials.
func TestAttackATrickedProgramAsksForAnObject(t *testing.T) {
	a := attack(t)
	for path, want := range map[string]int{
		"/data/in": 403, "/": 403, "/data?list-type=2": 403, "/data/../data/in": 403, "//data/in": 403, "/data/in?X-Amz-Signature=0": 400,
		"/_headstart/credentials": 401, "/_headstart/credentials/": 403, "/%5Fheadstart/credentials": 401,
	} {
		status, body := a.get(path, "")
		if status != want || bytes.Contains(body, []byte("secret")) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _ := a.get("/_headstart/credentials", s3proxytest.Get(a.others, "AWS_CONTAINER_AUTHORIZATION_TOKEN")); status != http.StatusUnauthorized {
		t.Errorf("with the token of another sandbox: %d", status)
	}
	if status, _ := a.get("/_headstart/credentials", s3proxytest.Get(a.env, "AWS_CONTAINER_AUTHORIZATION_TOKEN")); status != http.StatusOK {
		t.Errorf("with its own: %d", status)
	}
	if asked := a.store.Asked(); len(asked) > 0 {
		t.Errorf("the store was asked for %q", asked)
	}
}

// Credentials are good at their own sandbox's endpoint, and the store's keys at none.
func TestAttackASandboxUsesAnothersCredentials(t *testing.T) {
	a := attack(t)
	for want, env := range map[string][]string{"SignatureDoesNotMatch": a.others, "InvalidAccessKeyId": a.store.Env()} {
		_, err := client(t, a.at(env)).GetObject(t.Context(), &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("in")})
		a.fails(want, err)
	}
}

// A function reaches no bucket that the operator does not list, by a copy neither, nor learns its name.
func TestAttackAFunctionReachesAnotherBucket(t *testing.T) {
	a := attack(t)
	_, err := a.c.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Hidden), Key: aws.String("in")})
	a.fails("does not list bucket operator", err)
	for _, from := range []string{s3proxytest.Hidden + "/in", "/" + s3proxytest.Hidden + "/in", "%6fperator/in", s3proxytest.Hidden + "%2Fin?versionId=1"} {
		_, err := a.c.CopyObject(t.Context(), &sdk.CopyObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("copy"), CopySource: &from})
		a.fails("does not list bucket operator", err)
	}
	bucket, key, one := aws.String(s3proxytest.Bucket), aws.String("in"), aws.Int32(1)
	for _, from := range []string{s3proxytest.Hidden, s3proxytest.ReadOnly} {
		_, err = a.c.DeleteObjects(t.Context(), &sdk.DeleteObjectsInput{Bucket: bucket,
			Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("../" + from + "/in")}}}})
		a.fails("InvalidArgument", err)
		above := aws.String("../" + from + "/in")
		_, err = a.c.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: bucket, Key: above})
		a.fails("InvalidURI", err)
		upload := aws.String("../../../../" + from)
		_, err = a.c.UploadPart(t.Context(), &sdk.UploadPartInput{Bucket: bucket, Key: key, UploadId: upload,
			PartNumber: one, Body: strings.NewReader("x")})
		a.fails("InvalidArgument", err)
		_, err = a.c.AbortMultipartUpload(t.Context(), &sdk.AbortMultipartUploadInput{Bucket: bucket, Key: key,
			UploadId: upload})
		a.fails("InvalidArgument", err)
		_, err = a.c.ListParts(t.Context(), &sdk.ListPartsInput{Bucket: bucket, Key: key, UploadId: upload})
		a.fails("InvalidArgument", err)
	}
	list, err := a.c.ListBuckets(t.Context(), &sdk.ListBucketsInput{})
	if err != nil || len(list.Buckets) != 2 {
		t.Errorf("buckets: %+v, %v", list, err)
	}
}

// A function changes no bucket that it only reads, and opens none to others.
func TestAttackAFunctionChangesABucket(t *testing.T) {
	a := attack(t)
	bucket, archive, key := aws.String(s3proxytest.Bucket), aws.String(s3proxytest.ReadOnly), aws.String("in")
	_, err := a.c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: archive, Key: key, Body: strings.NewReader("x")})
	a.fails("only read bucket archive", err)
	_, err = a.c.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: archive, Key: key})
	a.fails("only read bucket archive", err)
	_, err = a.c.CreateMultipartUpload(t.Context(), &sdk.CreateMultipartUploadInput{Bucket: archive, Key: key})
	a.fails("only read bucket archive", err)
	_, err = a.c.GetBucketPolicy(t.Context(), &sdk.GetBucketPolicyInput{Bucket: bucket})
	a.fails("NotImplemented", err)
	_, err = a.c.PutBucketPolicy(t.Context(), &sdk.PutBucketPolicyInput{Bucket: bucket, Policy: aws.String("{}")})
	a.fails("NotImplemented", err)
	_, err = a.c.DeleteBucket(t.Context(), &sdk.DeleteBucketInput{Bucket: bucket})
	a.fails("NotImplemented", err)
	_, err = a.c.PutObjectAcl(t.Context(), &sdk.PutObjectAclInput{Bucket: bucket, Key: key, ACL: types.ObjectCannedACLPublicRead})
	a.fails("NotImplemented", err)
	_, err = a.c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x"), ACL: types.ObjectCannedACLPublicRead})
	a.fails("x-amz-acl", err)
	_, err = a.c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x"), GrantRead: aws.String("id=1")})
	a.fails("x-amz-grant-read", err)
}

// A namespace does not see by the time of a read what another one has.
func TestAttackAnotherNamespaceSeesNoRead(t *testing.T) {
	a := attack(t)
	get(t, a.c, s3proxytest.Bucket, "in")
	a.store.Asked()
	get(t, client(t, a.others), s3proxytest.Bucket, "in")
	if asked := a.store.Asked(); len(asked) != 1 || !strings.HasPrefix(asked[0], "GET") {
		t.Errorf("the store was asked for %q", asked)
	}
}

// A sandbox that asks for very much, by very many connections, has all of it answered, and another one is answered
// meanwhile.
func TestAttackASandboxAsksForVeryMuch(t *testing.T) {
	const all, atOnce = 10_000, 1000
	a := attack(t)
	get(t, a.c, s3proxytest.Bucket, "in")
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(atOnce)
	began := make(chan struct{})
	var once sync.Once
	for range all {
		g.Go(func() error {
			once.Do(func() { close(began) })
			out, err := a.c.GetObject(ctx, &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("in")})
			if err != nil {
				return err
			}
			defer out.Body.Close()
			if b, err := io.ReadAll(out.Body); err != nil || string(b) != "secret" {
				return fmt.Errorf("%q, %w", b, err)
			}
			return nil
		})
	}
	<-began
	get(t, client(t, a.others), s3proxytest.Bucket, "in")
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A store that fails an upload, or breaks it off: nobody reads what it does not have.
func TestAFailedWriteIsNotThere(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Fresh: "1h"})
	c := client(t, node.Pod("default", "a", ""))
	put(t, c, s3proxytest.Bucket, "out", []byte("first"))
	get(t, c, s3proxytest.Bucket, "out")
	failed := 0
	fail := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		if failed++; failed%2 == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	store.Before.Store(&fail)
	if _, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("out"), Body: strings.NewReader("second")}); err == nil || failed < 2 {
		t.Errorf("the failure was not told, after %d tries", failed)
	}
	store.Before.Store(nil)
	if _, got := get(t, c, s3proxytest.Bucket, "out"); string(got) != "first" {
		t.Errorf("%q is read", got)
	}
}

// A body that is not what was signed is nobody's object.
func TestAttackABodyIsAnother(t *testing.T) {
	a := attack(t)
	credentials, err := a.c.Options().Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for hash, want := range map[string]string{strings.Repeat("0", 64): "XAmzContentSHA256Mismatch", "0": "InvalidArgument",
		"STREAMING-AWS4-HMAC-SHA256-PAYLOAD": "x-amz-decoded-content-length"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s3proxytest.Get(a.env, "AWS_ENDPOINT_URL_S3")+"/data/forged", bytes.NewReader(content(1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Content-Sha256", hash)
		if err := v4.NewSigner().SignHTTP(t.Context(), credentials, r, hash, "s3", "us-east-1", time.Now()); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode/100 != 4 || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: %s %s %v", hash, res.Status, body, err)
		}
	}
	if _, err := a.c.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("forged")}); err == nil {
		t.Error("it is stored")
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
		end(true) // and so the ways of what was fetched ahead are known
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

// BenchmarkHit reads an object of 256 MB that the node has.
func BenchmarkHit(b *testing.B) {
	const size = 256_000_000
	store := s3proxytest.StartStore(b)
	node := s3proxytest.StartNode(b, store, s3proxytest.Options{Fresh: "always"})
	env := node.Pod("default", "a", "")
	put(b, client(b, store.Env()), s3proxytest.Bucket, "in", content(size))
	signed, err := sdk.NewPresignClient(client(b, env)).PresignGetObject(b.Context(), &sdk.GetObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: aws.String("in")})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	room := make([]byte, 256<<10)
	for n := -1; n < b.N; n++ {
		if n == 0 {
			b.ResetTimer()
		}
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, signed.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		c, err := net.Dial("tcp", r.URL.Host)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Write(c); err != nil {
			b.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReaderSize(c, len(room)), r)
		if err != nil {
			b.Fatal(err)
		}
		got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, room)
		if err != nil || got != size {
			b.Fatal(got, err)
		}
		res.Body.Close()
		c.Close()
	}
}
