package databuffer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	"golang.org/x/sys/unix"
)

const (
	// databases is how many attempts have copies at a time on a node. Others wait for their turn.
	databases = 256
	// memoryMost bounds what the node's own Redis holds, in bytes: a part of what the chart gives the daemon. Redis looks at it before
	// each command, or transaction; spaceMost bounds the process.
	memoryMost, spaceMost = 64 << 20, 512 << 20
	// owner is the user who may do everything.
	owner = "headstart"
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
	socket   string
	password string // of the user who may do everything; attempts are the default user
	commands table
	format   string // of what DUMP returns
	cancel   context.CancelFunc
	ended    chan struct{}
	ready    chan struct{} // closed when it answers
	free     chan int
}

// begin has the engine be there soon, and returns it if it is there.
func (e *engine) begin() (*running, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.program == "" || time.Since(e.failed) < againAfter {
		return nil, errNoEngine
	}
	if e.running == nil {
		r := &running{password: rand.Text(), ended: make(chan struct{}), ready: make(chan struct{}), free: make(chan int, databases)}
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
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return fmt.Errorf("making a directory for Redis: %w", err)
	}
	dir, err := os.MkdirTemp(e.dir, "") // what is left of an earlier process finds no other one
	if err != nil {
		return fmt.Errorf("making a directory for Redis: %w", err)
	}
	defer os.RemoveAll(dir)
	r.socket = filepath.Join(dir, "redis.sock")
	sum := sha256.Sum256([]byte(r.password))
	cmd := exec.CommandContext(ctx, e.program, "--port", "0", "--unixsocket", r.socket, "--unixsocketperm", "700", "--save", "",
		"--appendonly", "no", "--databases", strconv.Itoa(databases), "--maxmemory", strconv.Itoa(memoryMost), "--maxmemory-policy", "noeviction",
		"--proto-max-bulk-len", "1mb", "--sanitize-dump-payload", "yes",
		"--user", "default", "on", "nopass", "~*", "+@all", "-@admin", "-@dangerous", "-@scripting",
		"--user", owner, "on", "#"+hex.EncodeToString(sum[:]), "~*", "+@all",
		"--dir", dir, "--loglevel", "warning", "--daemonize", "no")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with a daemon that is killed
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The thread that starts the process has to live as long as it does (prctl(2), PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the node's own Redis: %w", err)
	}
	err = answers(ctx, r.socket)
	if err == nil {
		err = r.learn(ctx, cmd.Process.Pid)
	}
	if err != nil {
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

// client may do everything in one of the databases.
func (r *running) client(db int) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket, Username: owner, Password: r.password, DB: db, Protocol: 2, PoolSize: 2,
		MaxRetries: -1, DisableIdentity: true, ReadTimeout: ownTimeout, WriteTimeout: ownTimeout, ContextTimeoutEnabled: true})
}

// learn bounds the process, and asks for what it can.
func (r *running) learn(ctx context.Context, pid int) error {
	limit := &unix.Rlimit{Cur: spaceMost, Max: spaceMost}
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, limit, nil); err != nil {
		return fmt.Errorf("bounding the node's own Redis: %w", err)
	}
	c := r.client(0)
	defer c.Close() // it has nothing left to say
	reply, err := c.Do(ctx, "COMMAND").Slice()
	if err != nil {
		return fmt.Errorf("asking the node's own Redis for its commands: %w", err)
	}
	r.commands = parseTable(reply)
	const probe = "probe"
	err = c.Set(ctx, probe, "", 0).Err()
	dump := c.Dump(ctx, probe)
	if err := errors.Join(err, dump.Err(), c.FlushDB(ctx).Err()); err != nil {
		return fmt.Errorf("asking the node's own Redis for its format: %w", err)
	}
	r.format = format([]byte(dump.Val()))
	return nil
}

// format is the version of what DUMP returns: in front of a checksum of eight bytes (Redis' documentation of DUMP).
func format(dump []byte) string {
	const version, sum = 2, 8
	if len(dump) < version+sum {
		return ""
	}
	return string(dump[len(dump)-version-sum : len(dump)-sum])
}

// take returns a client of an empty database that nobody else has. It is to be given back.
func (r *running) take() (*database, error) {
	select {
	case n := <-r.free:
		return &database{of: r, number: n, Client: r.client(n)}, nil
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

// give empties the database, and gives it back. If it cannot be emptied, the process ends, and another one begins.
func (d *database) give() {
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	err := d.FlushDB(ctx).Err()
	_ = d.Close() // its connections have nothing left to say
	if err != nil {
		d.of.cancel()
		return
	}
	d.of.free <- d.number
}
