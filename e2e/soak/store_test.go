//go:build integration

package soak

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/e2e/soak/proxy"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

// prefix begins the keys of cases, in all stores; a number of six digits follows.
const keyspace = "soak"

var caseNumber = regexp.MustCompile(`(?:soak|stream)[:/](\d{6})$`)

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// openStores starts the stores, and what stands before them.
func (w *world) openStores(ctx context.Context) {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	at := netip.MustParseAddrPort(porttest.Address(w.t))
	w.objects = filepath.Join(w.dir, "s3", testbed.Bucket)
	w.s3, err = testbed.StartS3(ctx, testbed.S3Config{BinDir: os.Getenv("HEADSTART_BIN"), DataDir: filepath.Dir(w.objects), LogFile: filepath.Join(w.dir, "s3.log"),
		Address: at, Secret: testbed.NewSecret()})
	must(err)
	w.t.Cleanup(func() { w.s3.Close(context.Background()) })
	must(os.Mkdir(filepath.Join(w.dir, "secrets"), 0o700))
	must(os.WriteFile(filepath.Join(w.dir, "secrets", "s3"), []byte(w.s3.Secret.File()), 0o600))
	for key, size := range map[string]int{"large": plan.TooMuch, "huge": plan.Flood} {
		must(w.s3.Put(ctx, key, bytes.NewReader(make([]byte, size))))
	}

	w.redis, err = w.startRedis(ctx, "redis", false)
	must(err)
	w.streams, err = w.openStreams(ctx)
	must(err)

	w.web = newWeb(w)
	for input, open := range map[plan.Input]func() (*proxy.Server, error){
		plan.S3:    func() (*proxy.Server, error) { return proxy.HTTP(at.String(), w.faultOf) },
		plan.HTTP:  func() (*proxy.Server, error) { return proxy.HTTP(w.web.address, w.faultOf) },
		plan.Redis: func() (*proxy.Server, error) { return proxy.Redis(w.redis.Options().Addr, keyspace+":", w.faultOf) },
	} {
		w.ways[input], err = open()
		must(err)
		w.t.Cleanup(func() { must(w.ways[input].Close()) })
	}
	w.ways[plan.Stream] = w.ways[plan.HTTP]
}

// startRedis starts a Redis, which is started again when it dies, with what it had or without.
func (w *world) startRedis(ctx context.Context, name string, keeps bool) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: porttest.Address(w.t)})
	w.t.Cleanup(func() { _ = client.Close() })
	_, port, err := net.SplitHostPort(client.Options().Addr)
	if err != nil {
		return nil, err
	}
	appends := map[bool]string{true: "yes", false: "no"}[keeps]
	dir := filepath.Join(w.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return client, w.group.Start(ctx, process.Spec{Name: name, Path: "/usr/bin/redis-server", Log: io.Discard, Restart: true,
		Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", appends, "--dir", dir},
		Ready: func(ctx context.Context) error {
			return testbed.Poll(ctx, patience, func(ctx context.Context) error { return client.Ping(ctx).Err() })
		}})
}

// stores are those that the operator allows.
func (w *world) stores() []*nodeapi.Store {
	return []*nodeapi.Store{
		{Name: "s3", Kind: "s3", Endpoint: "http://" + w.ways[plan.S3].Address, Region: testbed.Region, PathStyle: true, Buckets: []string{testbed.Bucket}, Secret: "s3"},
		{Name: "redis", Kind: "redis", Endpoint: w.ways[plan.Redis].Address, Buckets: []string{keyspace}},
		{Name: queuesProcess, Kind: "redis", Endpoint: w.streams.way.Address, Buckets: []string{queueKeyspace}},
		{Name: "http", Kind: "http", Buckets: []string{w.ways[plan.HTTP].Address}},
	}
}

// faultOf is what happens to the next answer about a key.
func (w *world) faultOf(key string) proxy.Fault {
	m := caseNumber.FindStringSubmatch(key)
	if m == nil {
		return proxy.Fault{} // it is no case's own
	}
	number, err := strconv.Atoi(m[1])
	if err != nil {
		return proxy.Fault{}
	}
	r := w.find(w.plan.Case(number).ID)
	if r == nil {
		return proxy.Fault{}
	}
	return r.fault()
}

// fault is what happens to the next answer of the store.
func (r *run) fault() proxy.Fault {
	mine := r.tries.Add(1) == int64(r.Try)
	switch r.Fault {
	case plan.StoreStallsForEver:
		return proxy.Fault{Kind: proxy.Stalls}
	case plan.StoreIsAway:
		return proxy.Fault{Kind: proxy.Resets}
	case plan.StoreRefuses:
		if r.Way == plan.Entry && !mine { // or it would be tried for ever
			return proxy.Fault{}
		}
		return proxy.Fault{Kind: proxy.Answers, Status: http.StatusForbidden}
	case plan.StoreLacks:
		return proxy.Fault{Kind: proxy.Answers, Status: http.StatusNotFound}
	}
	if !mine {
		return proxy.Fault{}
	}
	switch r.Fault {
	case plan.StoreStalls:
		return proxy.Fault{Kind: proxy.Stalls, At: r.At}
	case plan.StoreResets:
		return proxy.Fault{Kind: proxy.Resets, At: r.At}
	case plan.StoreTruncates:
		return proxy.Fault{Kind: proxy.Truncates, At: r.At}
	case plan.StoreFails:
		return proxy.Fault{Kind: proxy.Answers, Status: http.StatusServiceUnavailable}
	case plan.ObjectChanges:
		return proxy.Fault{Kind: proxy.Meanwhile, At: r.At, Do: func() { r.complain(r.put(2)) }}
	}
	return proxy.Fault{}
}

// put stores a version of the case's input.
func (r *run) put(version int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	content := r.Content(version)
	r.expect(content)
	switch r.Input {
	case plan.S3:
		return r.w.s3.Put(ctx, r.key("/"), bytes.NewReader(content))
	case plan.Redis:
		// It may be just restarted.
		return testbed.Poll(ctx, patience, func(ctx context.Context) error { return r.w.redis.Set(ctx, r.key(":"), content, 0).Err() })
	case plan.HTTP, plan.Stream:
		r.version.Store(int64(version))
	}
	return nil
}

// forgetObject removes what put has stored.
func (r *run) forgetObject() {
	switch r.Input {
	case plan.S3:
		_ = os.Remove(filepath.Join(r.w.objects, r.key("/"))) // the rest goes with the test
	case plan.Redis:
		_ = r.w.redis.Del(context.Background(), r.key(":")).Err()
	}
}

func (r *run) key(separator string) string {
	return fmt.Sprintf("%s%s%06d", keyspace, separator, r.Number)
}

// reference is what the filter makes of the request.
func (r *run) reference() string {
	host := r.w.ways[plan.HTTP].Address
	switch {
	case r.Fault == plan.Foreign:
		return r.foreign()
	case r.Fault == plan.Shares:
		return fmt.Sprintf("s3://%s/%s", testbed.Bucket, r.sharedKey())
	case r.Fault == plan.TooLarge && r.Input == plan.S3:
		return fmt.Sprintf("s3://%s/large", testbed.Bucket)
	case r.Fault == plan.BufferFull && r.Input == plan.S3:
		return fmt.Sprintf("s3://%s/huge", testbed.Bucket)
	}
	switch r.Input {
	case plan.S3:
		return fmt.Sprintf("s3://%s/%s", testbed.Bucket, r.key("/"))
	case plan.Redis:
		return "redis://" + r.key("/")
	case plan.HTTP:
		return fmt.Sprintf("http://%s/%s", host, r.key("/"))
	case plan.Stream:
		return fmt.Sprintf("http://%s/stream/%06d", host, r.Number)
	}
	return ""
}

// foreign is a reference to what the function may not read.
func (r *run) foreign() string {
	switch r.Variant % plan.Foreigners {
	case 0:
		return "s3://other-bucket/" + r.key("/")
	case 1: // the buffer of a node
		return "redis://headstart/buffer:" + r.ID + ":0"
	case 2:
		return "http://" + r.w.edge.metrics + "/metrics"
	case 3:
		return "file:///headstart/input/" + r.ID
	}
	return "s3://" + testbed.Bucket + "/../" + r.ID
}

// shared is an object that is stored anew again and again.
type shared struct {
	mu       sync.Mutex
	version  int
	versions map[string]int // by digest
}

func (r *run) sharedKey() string { return fmt.Sprintf("shared/%d", r.Variant%plan.Shared) }

// putShared stores the case's input as the newest version of a shared object, and returns
// that.
func (r *run) putShared() (int, error) {
	s := &r.w.shared[r.Variant%plan.Shared]
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	content := r.Content(1)
	if s.versions == nil {
		s.versions = map[string]int{}
	}
	s.versions[digest(content)] = s.version + 1 // whoever reads it now may have it
	if err := r.w.s3.Put(ctx, r.sharedKey(), bytes.NewReader(content)); err != nil {
		return 0, err
	}
	s.version++
	return s.version, nil
}

// web is the server of HTTP.
type web struct {
	w       *world
	address string
}

func newWeb(w *world) *web {
	s := &web{w: w}
	mux := http.NewServeMux()
	mux.HandleFunc("/soak/{number}", s.object)
	mux.HandleFunc("/stream/{number}", s.stream)
	s.address = serve(w.t, mux)
	return s
}

// content is the newest version of a case's input.
func (s *web) content(number string) (content []byte, tag string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, ""
	}
	r := s.w.find(s.w.plan.Case(n).ID)
	if r == nil {
		return nil, ""
	}
	version := int(r.version.Load())
	if r.Fault == plan.TooLarge || r.Fault == plan.BufferFull {
		return make([]byte, r.Size), `"1"`
	}
	return r.Content(version), fmt.Sprintf("\"%d\"", version)
}

func (s *web) object(rw http.ResponseWriter, req *http.Request) {
	content, tag := s.content(req.PathValue("number"))
	if tag == "" {
		http.NotFound(rw, req)
		return
	}
	rw.Header().Set("ETag", tag)
	rw.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(rw, req, "", time.Time{}, bytes.NewReader(content))
}

// stream answers without a length, a version, or ranges.
func (s *web) stream(rw http.ResponseWriter, req *http.Request) {
	content, tag := s.content(req.PathValue("number"))
	if tag == "" {
		http.NotFound(rw, req)
		return
	}
	rw.Header().Set("Content-Type", "application/octet-stream")
	_ = http.NewResponseController(rw).Flush()
	_, _ = io.Copy(rw, struct{ io.Reader }{strings.NewReader(string(content))}) // who does not read on has left
}
