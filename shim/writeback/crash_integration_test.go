//go:build integration

package writeback

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/objects/powertest"
	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
)

const (
	// crashesEnv is how many crashes there are, three of four by a signal; 200 unless it says otherwise.
	crashesEnv = "HEADSTART_CRASHES"
	// These make this program a node that writes until it is killed.
	crashDirEnv, crashRoundEnv, crashStoreEnv = "HEADSTART_BACK_DIR", "HEADSTART_BACK_ROUND", "HEADSTART_BACK_STORE"

	bucketName = "data"
	// drain is the round of a node that only uploads.
	drain = -1
)

// tenants are namespaces, and their buckets. Each has objects of the same keys.
var tenants = []string{bucketName, "other"}

func init() {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		round, _ := strconv.Atoi(os.Getenv(crashRoundEnv))
		fmt.Println("ends", writeUntilKilled(dir, os.Getenv(crashStoreEnv), round))
		os.Exit(1)
	}
}

// startStore starts versitygw, and returns its address.
func startStore(t *testing.T) string {
	t.Helper()
	address, _ := startStoreIn(t)
	return address
}

// startStoreIn is startStore, and returns the directory with the buckets, too.
func startStoreIn(t *testing.T) (address, dir string) {
	t.Helper()
	dir, address = t.TempDir(), porttest.Address(t)
	for _, bucket := range tenants {
		if err := os.Mkdir(filepath.Join(dir, bucket), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	c := exec.Command(programtest.Path(t, "versitygw"), "--port", address, "--keep-alive", "posix", dir)
	c.Env = []string{"ROOT_ACCESS_KEY=AKIAEXAMPLE", "ROOT_SECRET_KEY=secret"}
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close() // it was only to see
			return address, dir
		}
		if t.Context().Err() != nil {
			t.Fatal(log.String())
		}
		time.Sleep(10 * time.Millisecond) // polls
	}
}

// sourceAt is a real store, as nodes have it.
func sourceAt(address, dir string) (*s3.Source, error) {
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("access_key_id = AKIAEXAMPLE\nsecret_access_key = secret\n"), 0o600); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return s3.New(s3.Config{Store: "s", Endpoint: "http://" + address, Region: "us-east-1", PathStyle: true,
		Buckets: tenants, Credentials: s3.FromSecret(func(context.Context) (secret.Secret, error) { return s3.LoadCredentials(root, "key") })})
}

// hasty is a store some of whose answers nobody waits for: what has become of such a request nobody knows.
type hasty struct{ Store }

func (h hasty) Forward(r *http.Request) (*http.Response, error) {
	if rand.IntN(40) > 0 {
		return h.Store.Forward(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), rand.N(4*time.Millisecond))
	defer cancel()
	res, err := h.Store.Forward(r.WithContext(ctx))
	if err == nil {
		b, failed := io.ReadAll(res.Body)
		_ = res.Body.Close() // it was only read from
		res.Body, err = io.NopCloser(bytes.NewReader(b)), failed
	}
	return res, err
}

// worker writes, deletes and reads.
type worker struct {
	name   string
	dir    string // for content
	writer *Writer
	store  Store
	// begins and ends are told of what it does.
	begins func(id string, e event)
	ends   func(id string, content string)
}

func keysOf(round int) (all []Key) {
	for _, tenant := range tenants {
		for _, name := range []string{"a", "b"} {
			all = append(all, Key{"s", tenant, fmt.Sprint("r/", round, "/", name)})
		}
	}
	return all
}

// of is what all contents of an object begin with: its tenant and its key.
func of(k Key) string { return k.Bucket + "/" + k.Key + "/" }

// foreign returns the first line of a content that is another tenant's; empty: there is none.
func foreign(k Key, body []byte) string {
	for line := range strings.Lines(string(body)) {
		for _, tenant := range tenants {
			if tenant != k.Bucket && strings.HasPrefix(line, tenant+"/") {
				return strings.TrimSuffix(line, "\n")
			}
		}
	}
	return ""
}

// bodyOf is the content that a name stands for, of up to 200 KB.
func bodyOf(name string) []byte {
	sum := md5.Sum([]byte(name))
	times := 1 + int(sum[0])%16
	if sum[1] < 32 {
		times *= 300
	}
	return bytes.Repeat([]byte(name+"\n"), times)
}

func (w *worker) once(ctx context.Context, round, i int) error {
	keys := keysOf(round)
	key := keys[rand.IntN(len(keys))]
	id := fmt.Sprint(w.name, ".", round, ".", i)
	e := event{key: of(key)}
	var err error
	switch what := rand.IntN(10); {
	case what < 6:
		e.writes, e.content = true, of(key)+id
		w.begins(id, e)
		err = w.write(ctx, key, e.content)
	case what == 6:
		e.writes = true
		w.begins(id, e)
		err = w.through(ctx, key, http.MethodDelete, nil)
	default:
		w.begins(id, e)
		e.content, err = w.read(ctx, key)
	}
	if err == nil {
		w.ends(id, e.content)
	}
	if errors.Is(err, errWrong) {
		return err
	}
	return nil
}

func (w *worker) write(ctx context.Context, key Key, name string) error {
	body := bodyOf(name)
	err := w.writer.Write(ctx, Object{Key: key, Function: key.Bucket + "/f", Content: string(body),
		Header: http.Header{"X-Amz-Meta-Name": {name}}})
	if errors.Is(err, ErrThrough) {
		err = w.through(ctx, key, http.MethodPut, body)
	}
	return err
}

func (w *worker) through(ctx context.Context, key Key, method string, body []byte) error {
	if err := w.writer.Await(ctx, key); err != nil {
		return err
	}
	a, err := bucket{w.store, key.Bucket}.small(ctx, method, key.Key, nil, nil, body)
	if err == nil && !a.ok() {
		err = a.err(method)
	}
	return err
}

// errWrong is of content that nobody has written.
var errWrong = errors.New("wrong content")

func (w *worker) read(ctx context.Context, key Key) (string, error) {
	h, err := w.writer.Held(key)
	if err != nil {
		return "", err
	}
	var body []byte
	if h != nil {
		defer h.Close()
		body, err = io.ReadAll(h)
	} else {
		if err := w.writer.Await(ctx, key); err != nil {
			return "", err
		}
		var a answer
		a, err = bucket{w.store, key.Bucket}.small(ctx, http.MethodGet, key.Key, nil, nil, nil)
		body = a.body
		if err == nil && a.status == http.StatusNotFound {
			return "", nil
		}
		if err == nil && !a.ok() {
			err = a.err("reading")
		}
	}
	if err != nil {
		return "", err
	}
	if theirs := foreign(key, body); theirs != "" {
		return theirs, nil // which is counted
	}
	name, _, _ := strings.Cut(string(body), "\n")
	if !bytes.Equal(body, bodyOf(name)) || !strings.HasPrefix(name, of(key)) {
		return "", fmt.Errorf("%w: %d bytes of %q", errWrong, len(body), name)
	}
	return name, nil
}

func openOn(dir, node string, store Store, log io.Writer) *Writer {
	return Open(Config{Dir: dir, Node: node, Bytes: 64 << 20, Writes: 1000, Patience: 30 * time.Second,
		Store: func(string) (Store, string, error) { return store, "", nil }, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// writeUntilKilled is the node that is killed. It prints what it does, and when.
func writeUntilKilled(dir, address string, round int) error {
	source, err := sourceAt(address, dir)
	if err != nil {
		return err
	}
	w := openOn(dir+"/journal", "killed", hasty{source}, io.Discard)
	fmt.Println("opened")
	if round == drain {
		select {}
	}
	var mu sync.Mutex
	print := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	failed := make(chan error)
	for n := range 3 {
		go func() {
			k := &worker{name: fmt.Sprint("k", n), dir: dir, writer: w, store: source,
				begins: func(id string, e event) { print("begins", id, time.Now().UnixNano(), e.writes, e.key, e.content) },
				ends:   func(id, content string) { print("ends-well", id, time.Now().UnixNano(), content) }}
			for i := 0; i < 8; i++ { // so that the check of a key has an end
				if err := k.once(context.Background(), round, i); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// history is what all nodes have done.
type history struct {
	mu     sync.Mutex
	events map[string]*event
	wrote  int
}

func (h *history) begins(id string, at int64, e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.from, e.open = time.Duration(at), true
	h.events[id] = &e
}

func (h *history) ends(id string, at int64, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.events[id]
	e.to, e.open, e.content = time.Duration(at), false, content
	if e.writes {
		h.wrote++
	}
}

// node has the program be a node that is killed after a while, with a fault just before.
func (h *history) node(t *testing.T, dir, address string, round int, while, fault func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDirEnv+"="+dir, crashStoreEnv+"="+address, crashRoundEnv+"="+strconv.Itoa(round))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		words := append(strings.Split(lines.Text(), " "), "", "", "", "", "")
		switch at, _ := strconv.ParseInt(words[2], 10, 64); words[0] {
		case "opened":
			time.AfterFunc(rand.N(150*time.Millisecond), func() { // at any moment of its work
				while()
				_ = child.Process.Signal(unix.SIGSTOP) // nothing runs on without power
				fault()
				_ = child.Process.Kill()
			})
		case "begins":
			h.begins(words[1], at, event{writes: words[3] == "true", key: words[4], content: words[5]})
		case "ends-well":
			h.ends(words[1], at, words[3])
		default:
			t.Fatalf("round %d: the node %s", round, lines.Text())
		}
	}
	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("round %d: the node was not killed: %v", round, err)
	}
}

// check waits until all is uploaded, reads all, and counts the keys whose history has no order.
func (h *history) check(t *testing.T, dir, address string, rounds int, w *worker) {
	t.Helper()
	source := w.store
	h.node(t, dir, address, drain, func() {
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			var left []Marker
			var err error
			for _, tenant := range tenants {
				more, failed := Pending(t.Context(), source, tenant, "")
				left, err = append(left, more...), errors.Join(err, failed)
			}
			if err != nil || time.Now().After(end) {
				t.Errorf("left: %+v, %d records, %v", left, pendingIn(dir+"/journal"), err)
				return
			}
			if len(left) == 0 && pendingIn(dir+"/journal") == 0 {
				return
			}
		}
	}, func() {})
	lost := 0
	for round := range rounds {
		for i, key := range keysOf(round) {
			id := fmt.Sprint("last.", round, ".", i)
			h.begins(id, time.Now().UnixNano(), event{key: of(key)})
			content, err := w.read(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			h.ends(id, time.Now().UnixNano(), content)
		}
	}
	byKey := map[string][]event{}
	open, cross := 0, 0
	for id, e := range h.events {
		if e.open {
			open++
		} else if e.crosses() {
			cross++
			t.Errorf("%s has read of %s what is another tenant's: %s", id, e.key, e.content)
		}
		if !e.open || e.writes {
			byKey[e.key] = append(byKey[e.key], *e)
		}
	}
	for key, events := range byKey {
		if !linear(events) {
			lost++
			t.Errorf("%s has no order:", key)
			for _, e := range events {
				t.Logf("%+v", e)
			}
		}
	}
	t.Logf("%d keys, %d events of which %d had no end, %d writes; "+
		"lost_writes and stale_reads: %d keys; cross_tenant: %d reads",
		len(byKey), len(h.events), open, h.wrote, lost, cross)
	if h.wrote < rounds {
		t.Errorf("%d writes in %d rounds", h.wrote, rounds)
	}
}

// pendingIn is how many writes a journal has that are not abandoned.
func pendingIn(dir string) (n int) {
	records, _ := filepath.Glob(dir + "/*" + suffix)
	for _, name := range records {
		b, err := os.ReadFile(name)
		if r, bad := parse(b); err == nil && (bad != nil || !r.Abandoned) {
			n++
		}
	}
	return n
}

// crash runs a node that is killed beside one that is not.
func crash(t *testing.T, dir string, rounds int, fault func(), after func()) {
	address := startStore(t)
	source, err := sourceAt(address, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	writer := openOn(t.TempDir(), "other", source, io.Discard)
	defer writer.Close()
	h := &history{events: map[string]*event{}}
	var round atomic.Int64
	over := make(chan struct{})
	var working sync.WaitGroup
	other := &worker{name: "other", dir: t.TempDir(), writer: writer, store: source,
		begins: func(id string, e event) { h.begins(id, time.Now().UnixNano(), e) },
		ends:   func(id, content string) { h.ends(id, time.Now().UnixNano(), content) }}
	working.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(rand.N(40 * time.Millisecond)):
			}
			if err := other.once(t.Context(), int(round.Load()), i); err != nil {
				t.Error(err)
			}
		}
	})
	for r := range rounds {
		round.Store(int64(r))
		h.node(t, dir, address, r, func() {}, fault)
		after()
	}
	close(over)
	working.Go(func() { h.check(t, dir, address, rounds, other) })
	working.Wait()
}

func crashes(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv(crashesEnv))
	if err != nil {
		return 200
	}
	return n
}

// Whenever a node is killed: what it has acknowledged is read everywhere, and nothing older.
func TestKilledNodes(t *testing.T) {
	crash(t, t.TempDir(), crashes(t)*3/4, func() {}, func() {})
}

// A power cut leaves any part of what was not synced.
func TestPowerCuts(t *testing.T) {
	disk := powertest.Mount(t)
	crash(t, disk.Dir, crashes(t)/4, func() { disk.Cut(rand.IntN(4) == 0) }, disk.Restore)
}
