// Command media runs programs for the workflows that CacheFlow is evaluated with (section 2): it gives them the input of
// a request as a file, and puts what they write into the store that the AWS SDK finds in the environment. It knows
// nothing of Headstart but where inputs are, and outputs: where there is a directory for these, it writes there instead.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/media/order"
	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		done, err := run(r)
		if err != nil {
			slog.Error("request failed", "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// The caller is gone if this fails.
		_ = json.NewEncoder(w).Encode(done)
	})
	if err := service.Run(ctx, os.Getenv, "", mux); err != nil {
		slog.Error("media ends", "error", err)
		os.Exit(1)
	}
}

var store = sync.OnceValues(func() (*s3.Client, error) {
	c, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		return nil, fmt.Errorf("configuring the SDK: %w", err)
	}
	return s3.NewFromConfig(c), nil
})

// put stores an object.
func put(ctx context.Context, bucket, key string, data []byte) error {
	client, err := store()
	if err != nil {
		return err
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data)})
	return err
}

// daemon is the node's, by the sandbox's socket.
var daemon = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("HEADSTART_SOCKET"))
}}}

// storeFile has the node make a file in the directory of outputs an object.
func storeFile(ctx context.Context, bucket, key, file string) error {
	to := url.Values{"to": {"s3://" + bucket + "/" + key}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://headstart/output/"+filepath.Base(file)+"?"+to.Encode(), nil)
	if err != nil {
		return err
	}
	res, err := daemon.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		why, _ := io.ReadAll(res.Body) // it is an error in any case
		return fmt.Errorf("%s: %s", res.Status, why)
	}
	return nil
}

// run runs an order's programs, one after the other.
func run(r *http.Request) (done order.Done, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), service.RequestTimeout)
	defer cancel()
	var programs []order.Program
	if err := json.NewDecoder(r.Body).Decode(&programs); err != nil {
		return done, fmt.Errorf("the body is no order: %w", err)
	}
	for _, p := range programs {
		began := time.Now()
		file := ""
		if dir := os.Getenv("HEADSTART_OUTPUT_DIR"); dir != "" && p.Key != "" {
			file = filepath.Join(dir, rand.Text())
			p.Keep = file
			defer os.Remove(file) // it is memory of this container
		}
		out, err := output(ctx, p, func(arg string) string { return inputs(arg, r.Header) })
		if err != nil {
			return done, err
		}
		done.Ran += time.Since(began)
		if p.Key == "" {
			continue
		}
		began = time.Now()
		if file != "" {
			err = storeFile(ctx, p.Bucket, p.Key, file)
		} else {
			err = put(ctx, p.Bucket, p.Key, out)
		}
		if err != nil {
			return done, fmt.Errorf("storing %s: %w", p.Key, err)
		}
		done.Put += time.Since(began)
	}
	return done, nil
}

// inputs names the files that an argument stands for.
func inputs(arg string, h http.Header) string {
	arg = strings.ReplaceAll(arg, order.Input, h.Get(input.HeaderFile))
	for _, name := range order.Names {
		arg = strings.ReplaceAll(arg, order.Named(name), filepath.Join("/headstart/inputs", name, h.Get("X-Headstart-Request")))
	}
	return arg
}

// output is what a program writes; it goes to a file if it is to stay there.
func output(ctx context.Context, p order.Program, name func(string) string) ([]byte, error) {
	args := make([]string, len(p.Args))
	for i, a := range p.Args {
		args[i] = name(a)
	}
	var out, said bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = &out, &said
	if p.Keep != "" {
		f, err := os.Create(p.Keep)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		c.Stdout = io.Writer(f)
	}
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, &said)
	}
	return out.Bytes(), nil
}
