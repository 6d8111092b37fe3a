package databuffer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// databases is how many attempts have copies at a time on a node. Others wait for their turn.
	databases = 256
	// memoryMost bounds the node's own Redis, in bytes: a part of what the chart gives the daemon.
	memoryMost = 64 << 20
	// startMost bounds its start, which takes 20 ms.
	startMost = 10 * time.Second
	// againAfter is how long the engine stays away after a start that failed.
	againAfter = 10 * time.Second
	// ownTimeout bounds a command to it.
	ownTimeout = 2 * time.Second
)

var errNoEngine = errors.New("the node's own Redis is away")

// engine is a Redis of the node's own, in memory only, where attempts work on copies. It begins when somebody needs it.
type engine struct {
	program, dir string
	log          *slog.Logger

	mu      sync.Mutex
	running *running
	failed  time.Time // when a start failed last
	closed  bool
	all     sync.WaitGroup
}

// running is a process, and its databases that nobody has.
type running struct {
	socket string
	cancel context.CancelFunc
	ended  chan struct{}
	ready  chan struct{} // closed when it answers
	free   chan int
}

// begin has the engine be there soon, and returns it if it is there.
func (e *engine) begin() (*running, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.program == "" || time.Since(e.failed) < againAfter {
		return nil, errNoEngine
	}
	if e.running == nil {
		r := &running{socket: filepath.Join(e.dir, "redis.sock"), ended: make(chan struct{}), ready: make(chan struct{}), free: make(chan int, databases)}
		for i := range databases {
			r.free <- i
		}
		ctx, cancel := context.WithCancel(context.Background())
		r.cancel, e.running = cancel, r
		e.all.Go(func() { e.run(ctx, r) })
	}
	select {
	case <-e.running.ready:
		return e.running, nil
	default:
		return nil, errNoEngine
	}
}

// run has the process run until ctx ends, or it ends by itself.
func (e *engine) run(ctx context.Context, r *running) {
	err := e.process(ctx, r)
	r.cancel()
	close(r.ended)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = nil
	if !e.closed {
		e.failed = time.Now()
		e.log.Warn("the node's own Redis has ended: attempts wait for their turn", "error", err)
	}
}

func (e *engine) process(ctx context.Context, r *running) error {
	if err := errors.Join(os.RemoveAll(e.dir), os.MkdirAll(e.dir, 0o700)); err != nil {
		return fmt.Errorf("making a directory for Redis: %w", err)
	}
	cmd := exec.CommandContext(ctx, e.program, "--port", "0", "--unixsocket", r.socket, "--unixsocketperm", "700", "--save", "",
		"--appendonly", "no", "--databases", strconv.Itoa(databases), "--maxmemory", strconv.Itoa(memoryMost), "--maxmemory-policy", "noeviction",
		"--dir", e.dir, "--loglevel", "warning", "--daemonize", "no")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with a daemon that is killed
	ended := make(chan error, 1)
	go func() {
		// The thread that starts the process has to live as long as it does (prctl(2), PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		ended <- cmd.Run()
	}()
	if err := answers(ctx, r.socket); err != nil {
		r.cancel()
		return errors.Join(err, <-ended)
	}
	close(r.ready)
	return <-ended
}

// answers waits until Redis does.
func answers(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, startMost)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			return c.Close()
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the node's own Redis: %w", ctx.Err())
		}
	}
}

// close ends the process.
func (e *engine) close() {
	e.mu.Lock()
	e.closed = true
	if e.running != nil {
		e.running.cancel()
	}
	e.mu.Unlock()
	e.all.Wait()
}

// take returns a client of an empty database that nobody else has. It is to be given back.
func (r *running) take() (*database, error) {
	select {
	case n := <-r.free:
		return &database{of: r, number: n, Client: redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket, DB: n, Protocol: 2, PoolSize: 2,
			MaxRetries: -1, DisableIdentity: true, ReadTimeout: ownTimeout, WriteTimeout: ownTimeout, ContextTimeoutEnabled: true})}, nil
	default:
		return nil, errNoEngine
	}
}

// database is one of the engine's.
type database struct {
	*redis.Client
	of     *running
	number int
}

// give empties the database, and gives it back. One that cannot be emptied is lost with the process.
func (d *database) give() {
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	err := d.FlushDB(ctx).Err()
	_ = d.Close() // its connections have nothing left to say
	if err == nil {
		d.of.free <- d.number
	}
}
