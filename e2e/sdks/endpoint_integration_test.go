//go:build integration

package sdks_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	static "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/e2e/sdks"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

// Each client gets from S3 on the node what it gets from the store, in a sandbox of its own network and with nothing but the
// environment of a sandbox.
func TestS3OnTheNode(t *testing.T) { compare(t, "through") }

// It gets the same from a bucket that is written behind, but for entity tags.
func TestS3OnTheNodeBehind(t *testing.T) { compare(t, "back") }

func compare(t *testing.T, write string) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: write})
	network := namespace(t)
	variables := node.Pod("default", "sdks", network)
	admin := s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: aws.String(store.URL()), UsePathStyle: true,
		HTTPClient:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Credentials: static.NewStaticCredentialsProvider(s3proxytest.KeyID, s3proxytest.Secret, "")})
	direct := sdks.Env{Endpoint: store.URL(), Region: "us-east-1", Bucket: s3proxytest.Bucket, Access: s3proxytest.KeyID,
		Secret: s3proxytest.Secret, BinDir: filepath.Dir(programtest.Path(t, "versitygw")), Skip: maps.Clone(sdks.NotWithVersitygw),
		Direct: func(ctx context.Context, key string, body io.ReadSeeker) error {
			_, err := admin.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(s3proxytest.Bucket), Key: &key, Body: body})
			return err
		}}
	maps.Copy(direct.Skip, sdks.OtherBuckets)
	direct.Behind = write == "back"
	endpoint := direct
	endpoint.Access, endpoint.Secret = "", ""
	endpoint.Endpoint, endpoint.Region = s3proxytest.Get(variables, "AWS_ENDPOINT_URL_S3"), s3proxytest.Get(variables, "AWS_REGION")
	endpoint.CredentialsURI = s3proxytest.Get(variables, "AWS_CONTAINER_CREDENTIALS_FULL_URI")
	endpoint.Token = s3proxytest.Get(variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN")
	endpoint.Command = func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + network, "--", name}, args...)...)
	}
	for _, client := range sdks.Clients {
		t.Run(string(client), func(t *testing.T) {
			endpoint, direct := endpoint, direct
			if client == sdks.CLI {
				endpoint.Only, direct.Only = someCases, someCases
			}
			from := run(t, client, endpoint)
			none(t, sdks.Check(from))
			none(t, sdks.Compare(only(run(t, client, direct), endpoint.Only), from))
		})
	}
}
