package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// servedBytes is what both serve, servedTimes in each repetition.
	servedBytes, servedTimes = 256 * megabyte, 3
	// readBuffer is what the client reads at once.
	readBuffer = 256 << 10
	nginxPort  = "18080"
)

// served compares how fast hits come with nginx, which serves the same file by sendfile, on the same loopback.
func (b *bench) served(ctx context.Context, part *cache.Part, bed *testbed.Bed) error {
	if _, err := exec.LookPath("nginx"); err != nil {
		return fmt.Errorf("%w; e2e/cache/setup.sh installs it", err)
	}
	o, err := b.make(ctx, "served", servedBytes, b.Seed, ours)
	if err != nil {
		return err
	}
	if _, _, _, err := asks(ctx, bed, testbed.Edge, "sdk-fresh", o); err != nil { // from now on the node has it
		return err
	}
	env, network, err := environment("sdk-fresh")
	if err != nil {
		return err
	}
	url, err := presigned(ctx, env, network, o)
	if err != nil {
		return err
	}
	stop, err := b.nginx(ctx, network, o)
	if err != nil {
		return err
	}
	defer stop()
	sides := []struct{ name, url string }{{"nginx MB/s", "http://127.0.0.1:" + nginxPort + "/served"}, {"a hit MB/s", url}}
	rate := map[string][]float64{}
	for n := range b.Repetitions * servedTimes {
		if n%servedTimes == 0 {
			result.Progress(fmt.Sprintf("nginx, round %d of %d", n/servedTimes+1, b.Repetitions))
		}
		for _, s := range turns(sides, n) {
			took, err := download(ctx, network, s.url, servedBytes)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rate[s.name] = append(rate[s.name], servedBytes/megabyte/took.Seconds())
		}
	}
	p := cache.Point{Case: "256 MB by loopback"}
	for _, s := range sides {
		p.Values = append(p.Values, cache.Value{Name: s.name, Value: medianOf(rate[s.name])})
	}
	part.Points = append(part.Points, p)
	part.Figures[cache.S3HitVsNginx] = medianOf(ratios(rate[sides[1].name], rate[sides[0].name]))
	return nil
}

// environment returns the environment of a function's program, and its network namespace.
func environment(function string) (env map[string]string, network string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, "", err
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		env := map[string]string{}
		for _, v := range bytes.Split(b, []byte{0}) {
			name, value, _ := strings.Cut(string(v), "=")
			env[name] = value
		}
		if strings.HasPrefix(env["HEADSTART_INSTANCE"], "default-"+function+"-") && env["AWS_ENDPOINT_URL_S3"] != "" {
			return env, filepath.Join(filepath.Dir(path), "ns/net"), nil
		}
	}
	return nil, "", errors.New("function " + function + " has no program that finds S3 on the node")
}

// dialer connects from within a network namespace.
func dialer(network string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, proto, address string) (c net.Conn, err error) {
		err = nsthread.Run(network, func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, proto, address)
			return err
		})
		return c, err
	}
}

// presigned is a URL by which the sandbox's programs get an object.
func presigned(ctx context.Context, env map[string]string, network string, o object) (string, error) {
	transport := &http.Transport{DialContext: dialer(network), DisableKeepAlives: true}
	from := endpointcreds.New(env["AWS_CONTAINER_CREDENTIALS_FULL_URI"], func(c *endpointcreds.Options) {
		c.AuthorizationToken, c.HTTPClient = env["AWS_CONTAINER_AUTHORIZATION_TOKEN"], &http.Client{Transport: transport}
	})
	client := s3.New(s3.Options{Region: env["AWS_REGION"], BaseEndpoint: aws.String(env["AWS_ENDPOINT_URL_S3"]), UsePathStyle: true,
		Credentials: from})
	signed, err := s3.NewPresignClient(client).PresignGetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(testbed.Bucket), Key: &o.key},
		s3.WithPresignExpires(time.Hour))
	if err != nil {
		return "", fmt.Errorf("presigning: %w", err)
	}
	return signed.URL, nil
}

// nginx serves the object's content in a network namespace until stop is called.
func (b *bench) nginx(ctx context.Context, network string, o object) (stop func(), err error) {
	dir := filepath.Join(b.Out, "cache", "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "served"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(content.Write(f, content.Noise, o.size, b.Seed), f.Close()); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("user root;\ndaemon off;\npid %[1]s/pid;\nerror_log %[1]s/error.log;\nevents {}\nhttp {\n"+
		"  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  server { listen 127.0.0.1:%[2]s; root %[1]s; }\n}\n", dir, nginxPort)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+network, "nginx", "-c", filepath.Join(dir, "nginx.conf"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was interrupted
	}
	err = testbed.Poll(ctx, traceTimeout, func(ctx context.Context) error {
		c, err := dialer(network)(ctx, "tcp", "127.0.0.1:"+nginxPort)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// download is how long it takes to read an answer by a connection of its own.
func download(ctx context.Context, network, url string, size int64) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	c, err := dialer(network)(ctx, "tcp", r.URL.Host)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	if err := r.Write(c); err != nil {
		return 0, err
	}
	from := bufio.NewReaderSize(c, readBuffer)
	res, err := http.ReadResponse(from, r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ContentLength != size {
		return 0, fmt.Errorf("%s, %d bytes", res.Status, res.ContentLength)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, make([]byte, readBuffer))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return time.Since(began), err
}
