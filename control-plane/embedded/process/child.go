package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// firstRestart is short: after a single crash the node should be back before its
	// requests time out.
	firstRestart = 50 * time.Millisecond
	// maxRestart keeps a child that cannot start from burning a core, while a person
	// who mends the cause does not wait long.
	maxRestart = 5 * time.Second
	// steadyAfter is how long a child must have run for its next death to count as
	// the first one again.
	steadyAfter = 10 * time.Second
	// pipeGrace is how long the child's log may stay open in a descendant that left
	// its process group, before the log is cut off.
	pipeGrace = time.Second
)

// restartDelay doubles from firstRestart to maxRestart; failures counts from 0.
func restartDelay(failures int) time.Duration {
	delay := firstRestart
	for ; failures > 0 && delay < maxRestart; failures-- {
		delay *= 2
	}
	return min(delay, maxRestart)
}

type child struct {
	spec Spec
	tail tail

	began    chan struct{} // closed at the first successful fork
	ended    chan struct{} // closed when the first life is over, or failed to begin
	firstErr error         // how it was over; valid after ended
	done     chan struct{} // closed when nothing is left of it

	stop, kill       context.Context // ended to stop it; when there is no time left
	askStop, askKill context.CancelFunc

	changed func() // called without mu

	mu     sync.Mutex
	status Status
}

func newChild(spec Spec, changed func()) *child {
	if spec.StopTimeout == 0 {
		spec.StopTimeout = defaultStopTimeout
	}
	c := &child{
		spec:   spec,
		tail:   tail{next: spec.Log},
		began:  make(chan struct{}),
		ended:  make(chan struct{}),
		done:   make(chan struct{}),
		status: Status{Name: spec.Name, State: Starting, Since: time.Now()},

		changed: changed,
	}
	c.stop, c.askStop = context.WithCancel(context.Background())
	c.kill, c.askKill = context.WithCancel(context.Background())
	return c
}

// supervise runs the child until it is stopped, or ends and is not to be restarted.
func (c *child) supervise(onExit func(Exit)) {
	defer close(c.done)
	started := sync.OnceFunc(func() { close(c.began) })
	firstLife := true
	for failures := 0; ; failures++ {
		begin := time.Now()
		var pid int
		err := nsthread.Run(c.spec.NetNS, func() (err error) {
			pid, err = c.run(started)
			return err
		})
		if time.Since(begin) >= steadyAfter {
			failures = 0
		}
		delay, next := time.Duration(-1), Ended
		if c.spec.Restart && c.stop.Err() == nil {
			delay, next = restartDelay(failures), Waiting
		}
		c.update(func(s *Status) { s.State, s.PID, s.LastExit, s.ExitedAt = next, 0, exitText(err), time.Now() })
		onExit(Exit{Name: c.spec.Name, PID: pid, Err: err, Stopping: c.stop.Err() != nil, Restart: delay})
		if firstLife {
			firstLife, c.firstErr = false, err
			close(c.ended)
		}
		if next == Ended {
			return
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-c.stop.Done():
			timer.Stop()
			c.update(func(s *Status) { s.State = Ended })
			return
		}
		c.update(func(s *Status) { s.Restarts++ })
	}
}

// run is one life of the child, from fork to the end of its last relative in the
// process group. Its thread must not end before the child: see nsthread.
func (c *child) run(started func()) (pid int, err error) {
	cmd := exec.Command(c.spec.Path, c.spec.Args...)
	cmd.Env = c.spec.Env
	cmd.Stdout, cmd.Stderr = &c.tail, &c.tail
	cmd.WaitDelay = pipeGrace
	// A session of its own: the terminal's Ctrl-C reaches us alone, so that we stop
	// the children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	c.update(func(s *Status) { s.State, s.PID = Running, pid })
	started()

	exited, stopper := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopper)
		c.signal(pid, exited)
	}()
	// WNOWAIT leaves a zombie, so that neither the pid nor the process group's number
	// can belong to somebody else while we signal them.
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	close(exited)
	<-stopper
	// ESRCH: the group had no other member.
	if killErr := unix.Kill(-pid, unix.SIGKILL); killErr != nil && !errors.Is(killErr, unix.ESRCH) {
		err = errors.Join(err, fmt.Errorf("killing its process group: %w", killErr))
	}
	waitErr := cmd.Wait()
	if errors.Is(waitErr, exec.ErrWaitDelay) {
		waitErr = nil // it ended with status 0; a descendant kept its log open
	}
	return pid, errors.Join(waitErr, err)
}

// signal sends the stop signals that become due before exited.
func (c *child) signal(pid int, exited <-chan struct{}) {
	select {
	case <-exited:
		return
	case <-c.stop.Done():
	}
	// The pid is ours until it is reaped, which waits for this function; a failure
	// can only mean that it is just ending.
	_ = unix.Kill(pid, unix.SIGTERM)
	timer := time.NewTimer(c.spec.StopTimeout)
	defer timer.Stop()
	select {
	case <-exited:
		return
	case <-timer.C:
	case <-c.kill.Done():
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
}

// awaitReady returns nil when the first life of the child is ready.
func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case <-c.began:
	case <-c.ended:
		select {
		case <-c.began: // and ended since; without Ready it has done all we can ask for
		default:
			return c.firstErr
		}
	}
	if c.spec.Ready == nil {
		return nil
	}
	ready := make(chan error, 1)
	go func() { ready <- c.spec.Ready(ctx) }()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("waiting until it is ready: %w", err)
		}
		return nil
	case <-c.ended:
		cancel()
		<-ready
		return fmt.Errorf("ended before it was ready: %s", exitText(c.firstErr))
	}
}

// shutdown stops the child and waits for its end; when ctx ends it is killed.
func (c *child) shutdown(ctx context.Context) {
	c.askStop()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.askKill()
		<-c.done
	}
}

// exitText is err in the words of wait(2).
func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func (c *child) update(change func(*Status)) {
	c.mu.Lock()
	before := c.status.State
	if change(&c.status); c.status.State != before {
		c.status.Since = time.Now()
	}
	c.mu.Unlock()
	c.changed()
}

func (c *child) current() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}
