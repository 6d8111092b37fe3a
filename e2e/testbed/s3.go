package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// Region is the S3 server's; it takes any.
const Region = "us-east-1"

// readyTimeout is many times what the S3 server takes to start.
const readyTimeout = 20 * time.Second

// Secret is an access key of the S3 server.
type Secret struct{ Access, Key string }

// NewSecret returns one that nobody else has.
func NewSecret() Secret { return Secret{Access: random(), Key: random()} }

// File is the secret as the operator keeps it.
func (s Secret) File() string {
	return fmt.Sprintf("access_key_id = %s\nsecret_access_key = %s\n", s.Access, s.Key)
}

// ParseSecret reads what File has written.
func ParseSecret(file string) (s Secret, err error) {
	_, err = fmt.Sscanf(file, "access_key_id = %s\nsecret_access_key = %s", &s.Access, &s.Key)
	if err != nil {
		return s, fmt.Errorf("reading a secret: %w", err)
	}
	return s, nil
}

// S3 is the S3 server (versitygw) in its own network namespace.
type S3 struct {
	Secret   Secret
	Endpoint string

	client    *s3.Client
	transport *http.Transport
	group     *process.Group
	log       io.Closer
}

// S3Config says where an S3 server runs.
type S3Config struct {
	// BinDir has the server's program, DataDir its objects; LogFile gets its words.
	BinDir, DataDir, LogFile string
	// Namespace is the path of its network namespace, Address is there.
	Namespace string
	Address   netip.AddrPort
	Secret    Secret
}

// StartS3 starts the server and makes Bucket and Interim. Close ends it.
func StartS3(ctx context.Context, c S3Config) (*S3, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(c.LogFile)
	if err != nil {
		return nil, err
	}
	s := TakeS3(c)
	s.group, s.log = process.New(func(process.Exit) {}), log
	err = s.group.Start(ctx, process.Spec{
		Name: "s3", Path: filepath.Join(c.BinDir, "versitygw"), NetNS: c.Namespace, Log: log, Restart: true,
		Env:  append(os.Environ(), "ROOT_ACCESS_KEY="+c.Secret.Access, "ROOT_SECRET_KEY="+c.Secret.Key),
		Args: []string{"--port", c.Address.String(), "--region", Region, "--keep-alive", "posix", c.DataDir},
		Ready: func(ctx context.Context) error {
			return Poll(ctx, readyTimeout, func(ctx context.Context) error {
				_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(Bucket)})
				return err
			})
		},
	})
	if err == nil {
		_, err = s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(Interim)})
	}
	if err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

// TakeS3 uses a server that somebody else runs, by its address, namespace and secret. Close
// leaves it running.
func TakeS3(c S3Config) *S3 {
	s := &S3{Secret: c.Secret, Endpoint: "http://" + c.Address.String()}
	s.transport = &http.Transport{DialContext: dialIn(c.Namespace)}
	s.client = s3.New(s3.Options{BaseEndpoint: aws.String(s.Endpoint), Region: Region, UsePathStyle: true,
		HTTPClient: &http.Client{Transport: s.transport}, Credentials: credentials.NewStaticCredentialsProvider(c.Secret.Access, c.Secret.Key, "")})
	return s
}

// dialIn dials from inside a network namespace. A socket belongs to the namespace that it
// was made in, whoever uses it later.
func dialIn(namespace string) func(ctx context.Context, proto, address string) (net.Conn, error) {
	return func(ctx context.Context, proto, address string) (conn net.Conn, err error) {
		err = nsthread.Run(namespace, func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, proto, address)
			return err
		})
		return conn, err
	}
}

// Usable tells whether the server is there, takes the secret and has Bucket.
func (s *S3) Usable(ctx context.Context) error {
	if _, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(Bucket)}); err != nil {
		return fmt.Errorf("looking for the bucket %s: %w", Bucket, err)
	}
	return nil
}

// Put stores an object.
func (s *S3) Put(ctx context.Context, key string, body io.ReadSeeker) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(Bucket), Key: aws.String(key), Body: body,
		ContentType: aws.String("video/x-motion-jpeg")})
	if err != nil {
		return fmt.Errorf("storing %s: %w", key, err)
	}
	return nil
}

// Get reads an object.
func (s *S3) Get(ctx context.Context, key string) ([]byte, error) {
	o, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(Bucket), Key: aws.String(key)})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	defer o.Body.Close()
	return io.ReadAll(o.Body)
}

// Copy stores an object once more, under another key.
func (s *S3) Copy(ctx context.Context, from, to string) error {
	_, err := s.client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: aws.String(Bucket), CopySource: aws.String(Bucket + "/" + from), Key: aws.String(to)})
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

// Remove removes the objects of a bucket whose keys begin with a prefix.
func (s *S3) Remove(ctx context.Context, bucket, prefix string) error {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing %s: %w", prefix, err)
		}
		for _, o := range page.Contents {
			if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: o.Key}); err != nil {
				return fmt.Errorf("removing %s: %w", *o.Key, err)
			}
		}
	}
	return nil
}

// PID is the server's process, 0 if none runs, or somebody else runs it.
func (s *S3) PID() int {
	if s.group == nil {
		return 0
	}
	for _, p := range s.group.Status() {
		return p.PID // it is the only one
	}
	return 0
}

// Close ends the server; its objects stay.
func (s *S3) Close(ctx context.Context) {
	s.transport.CloseIdleConnections()
	if s.group == nil {
		return
	}
	s.group.Stop(ctx)
	_ = s.log.Close() // the server's last words are lost, if that
}
