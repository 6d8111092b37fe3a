//go:build integration

package s3

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// gatewayStart is how long the S3 server may take until it listens.
const gatewayStart = 30 * time.Second

// gateway is a real S3 server with one empty bucket.
type gateway struct {
	t       *testing.T
	address string
	admin   *sdk.Client
	dir     string
	log     bytes.Buffer
	running *exec.Cmd
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{t: t, address: porttest.Address(t), dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(g.dir, testBucket), 0o700); err != nil {
		t.Fatal(err)
	}
	g.start()
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			t.Logf("versitygw: %s", g.log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), gatewayStart)
	defer cancel()
	for ticker := time.NewTicker(20 * time.Millisecond); ; {
		if conn, err := net.Dial("tcp", g.address); err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal("versitygw does not listen")
		}
	}
	g.admin = sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + g.address), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(testKeyID, testSecret, ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	return g
}

// start runs the server, which need not listen yet.
func (g *gateway) start() {
	cmd := exec.Command(programtest.Path(g.t, "versitygw"), "--port", g.address, "posix", g.dir)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + testKeyID, "ROOT_SECRET_KEY=" + testSecret}
	cmd.Stdout, cmd.Stderr = &g.log, &g.log
	if err := cmd.Start(); err != nil {
		g.t.Error(err)
	}
	g.running = cmd
}

// stop kills the server, so Wait always has an error to tell.
func (g *gateway) stop() {
	_ = g.running.Process.Kill()
	_ = g.running.Wait()
}

func (g *gateway) put(ref source.Reference, contentType string, content []byte) error {
	_, err := g.admin.PutObject(context.Background(), &sdk.PutObjectInput{
		Bucket: &ref.Bucket, Key: &ref.Key, ContentType: &contentType, Body: bytes.NewReader(content),
	})
	return err
}

func (g *gateway) delete(ref source.Reference) error {
	_, err := g.admin.DeleteObject(context.Background(), &sdk.DeleteObjectInput{Bucket: &ref.Bucket, Key: &ref.Key})
	return err
}

// source returns a source that reaches the gateway at address, with the secret given.
func (g *gateway) source(t *testing.T, address, keyID, secret string) *Source {
	t.Helper()
	return g.sourceOf(t, address, sourcetest.Secrets(t, "edge", 0o600, testFile(keyID, secret)))
}

func (g *gateway) sourceOf(t *testing.T, address string, secrets *os.Root) *Source {
	t.Helper()
	cfg := config(secrets)
	cfg.Endpoint, cfg.Region = "http://"+address, "us-east-1"
	cfg.Buckets = append(cfg.Buckets, "missing-bucket")
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestGatewayConformance(t *testing.T) {
	g := startGateway(t)
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store {
		secrets := sourcetest.Secrets(t, "edge", 0o600, testFile(testKeyID, testSecret))
		s := g.sourceOf(t, g.address, secrets)
		return sourcetest.Store{Source: s, Scheme: source.SchemeS3, Bucket: testBucket, Part: Part, Put: g.put, Delete: g.delete, Close: s.Close,
			Secret: func(right bool) error {
				value := testSecret
				if !right {
					value = "another-secret"
				}
				return secrets.WriteFile("edge", []byte(testFile(testKeyID, value)), 0o600)
			}}
	})
}

func TestGatewayRefuses(t *testing.T) {
	g := startGateway(t)
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "k"}
	if err := g.put(ref, "text/plain", []byte("content")); err != nil {
		t.Fatal(err)
	}
	other := source.Reference{Scheme: source.SchemeS3, Bucket: "missing-bucket", Key: "k"}
	for name, in := range map[string]struct {
		keyID, secret string
		ref           source.Reference
		title         string
	}{
		"wrong secret":     {testKeyID, "another-secret", ref, "StoreForbidden"},
		"unknown key":      {"AKIAUNKNOWN", testSecret, ref, "StoreForbidden"},
		"missing bucket":   {testKeyID, testSecret, other, "InputNotFound"},
		"right all around": {testKeyID, testSecret, ref, "Internal"},
	} {
		err := g.source(t, g.address, in.keyID, in.secret).Fetch(t.Context(), in.ref, "", (&sourcetest.Sink{}).Begin)
		if in.title == "Internal" && err == nil {
			continue
		}
		if p := problem.Of(err); p.Title != in.title {
			t.Errorf("%s: %v", name, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, in.secret) {
			t.Errorf("%s: the error tells the secret: %s", name, text)
		}
	}
}

// A real server takes what the agent of a pod's identity gives, and of a public bucket what is not signed.
func TestGatewayWithoutASecret(t *testing.T) {
	g := startGateway(t)
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "k"}
	if err := g.put(ref, "text/plain", []byte("content")); err != nil {
		t.Fatal(err)
	}
	alone(t)
	agent(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q}`, testKeyID, testSecret)
	})
	fetch := func(credentials aws.CredentialsProvider) string {
		cfg := config(nil)
		cfg.Endpoint, cfg.Region, cfg.Credentials = "http://"+g.address, "us-east-1", credentials
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sink := &sourcetest.Sink{}
		if err := s.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
			return problem.Of(err).Title
		}
		return string(sink.Content)
	}
	if got := fetch(Workload("us-east-1")); got != "content" {
		t.Errorf("by the workload's identity: %s", got)
	}
	if got := fetch(Anonymous()); got != "StoreForbidden" {
		t.Errorf("from a bucket that is not public: %s", got)
	}
	policy := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*"}]}`, testBucket)
	if _, err := g.admin.PutBucketPolicy(t.Context(), &sdk.PutBucketPolicyInput{Bucket: aws.String(testBucket), Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	if got := fetch(Anonymous()); got != "content" {
		t.Errorf("from a public bucket: %s", got)
	}
}

// Whether the server honours If-Match or not, the change is reported: the parts after
// the first are asked for when the object is another.
func TestGatewayChanges(t *testing.T) {
	g := startGateway(t)
	s := g.source(t, g.address, testKeyID, testSecret)
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "k"}
	for name, change := range map[string]func() error{
		"same size": func() error { return g.put(ref, "text/plain", bytes.Repeat([]byte("b"), 20*Part)) },
		"smaller":   func() error { return g.put(ref, "text/plain", []byte("b")) },
		"empty":     func() error { return g.put(ref, "text/plain", nil) },
		"gone":      func() error { return g.delete(ref) },
	} {
		if err := g.put(ref, "text/plain", bytes.Repeat([]byte("a"), 20*Part)); err != nil {
			t.Fatal(err)
		}
		sink := &sourcetest.Sink{OnBegin: change}
		if err := s.Fetch(t.Context(), ref, "", sink.Begin); problem.Of(err).Title != "InputChanged" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A store that restarts within some seconds fails no fetch, before its first byte or in between.
func TestGatewayRestarts(t *testing.T) {
	const away = 3 * time.Second
	content := bytes.Repeat([]byte("0123456789abcdef"), 20*Part/16)
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "k"}
	for _, name := range []string{"before", "in between"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the store is away in real time
			g := startGateway(t)
			if err := g.put(ref, "text/plain", content); err != nil {
				t.Fatal(err)
			}
			back := make(chan struct{})
			restart := func() error {
				g.stop()
				time.AfterFunc(away, func() { g.start(); close(back) })
				return nil
			}
			sink := &sourcetest.Sink{OnBegin: restart}
			if name == "before" {
				sink.OnBegin = nil
				_ = restart()
			}
			err := g.source(t, g.address, testKeyID, testSecret).Fetch(t.Context(), ref, "", sink.Begin)
			<-back
			if err != nil || !bytes.Equal(sink.Content, content) {
				t.Errorf("%d bytes, %v", len(sink.Content), err)
			}
		})
	}
}

// Behind a line that breaks, the object arrives whole all the same; behind a dead one
// the caller is told in time.
func TestGatewayBehindABadLine(t *testing.T) {
	g := startGateway(t)
	sourcetest.RunBehindABadLine(t, g.address, func(t *testing.T, address string) sourcetest.Store {
		s := g.source(t, address, testKeyID, testSecret)
		return sourcetest.Store{Source: s, Scheme: source.SchemeS3, Bucket: testBucket, Part: Part, Put: g.put, Delete: g.delete, Close: s.Close}
	})
}
