//go:build integration

package s3proxy_test

import (
	"bytes"
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

	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

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
