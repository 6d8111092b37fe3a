// Command registry is a container registry over plain HTTP, for a test cluster. Blobs lie in
// a directory, manifests in memory: what was pushed is gone when it ends.
//
//	registry -listen 10.99.0.1:5000 -dir blobs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// headerTimeout ends connections that never say what they want.
const headerTimeout = 10 * time.Second

func main() {
	listen := flag.String("listen", "127.0.0.1:5000", "`address` to serve on")
	dir := flag.String("dir", "", "`directory` of the blobs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	server := &http.Server{
		Addr: listen,
		Handler: wholeBlobs(registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)),
			registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))),
		ReadHeaderTimeout: headerTimeout,
	}
	unhook := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unhook()
	if err := server.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// wholeBlobs answers ranges without an end with all of the blob, as RFC 9110, section 14.2, allows. The
// registry answers them with 416. A containerd that was restarted amid a pull asks for such a range, and
// does so again after each 416.
func wholeBlobs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Range"), "-") {
			r.Header.Del("Range")
		}
		next.ServeHTTP(w, r)
	})
}
