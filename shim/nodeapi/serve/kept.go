package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	sys "golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// A gateway may write a request to a connection while the server closes it, and neither can know. So a process whose
// socket another has taken over closes no connection of HTTP/1 that waits for a request: it hands it to the other one
// (SCM_RIGHTS, unix(7)), which reads what the gateway has written. HTTP/2 says itself which requests are not served
// (RFC 9113, section 6.8).

const (
	// handedOver makes the path by which connections are handed over of that of a socket.
	handedOver = ".kept"
	// handOverLimit bounds handing one connection over, and taking it: both processes are on this machine.
	handOverLimit = time.Second
)

// keeping is a listener whose connections stay when its process ends, if another one has its path then.
type keeping struct {
	net.Listener // of a unix socket
	path         string
	takenOver    func() bool
	handed       net.Listener // by which a process before hands its connections over
	ready        chan accepted
	closed       context.Context // over when nothing is accepted any more
	left         context.Context // over when connections go to another process, or the same
	end          func() error    // of left, once
	close        context.CancelFunc
	offering     sync.WaitGroup // goroutines

	mu    sync.Mutex
	open  map[*kept]bool // connections
	empty chan struct{}  // if somebody waits until there are none
}

func keep(l net.Listener, path string, takenOver func() bool) (*keeping, error) {
	handed, err := Unix(path + handedOver)()
	if err != nil {
		return nil, err
	}
	k := &keeping{Listener: l, path: path, takenOver: takenOver, handed: handed, ready: make(chan accepted), open: map[*kept]bool{}}
	k.closed, k.close = context.WithCancel(context.Background())
	left, leave := context.WithCancel(k.closed)
	k.left, k.end = left, sync.OnceValue(func() error {
		leave()
		// Connections that nobody has accepted yet go to the other process, too.
		pending(handed.(*unixListener).Listener.(*limited).Listener, k.take)
		pending(l, func(c net.Conn) { k.offer(c, nil) })
		err := errors.Join(l.Close(), handed.Close())
		k.offering.Wait()
		return err
	})
	k.offering.Go(func() {
		for {
			c, err := k.Listener.Accept()
			if err != nil && left.Err() != nil || !k.offer(c, err) {
				return
			}
		}
	})
	k.offering.Go(func() {
		for {
			from, err := handed.Accept()
			switch {
			case err == nil:
				k.offering.Go(func() { k.take(from) })
				continue
			case errors.Is(err, net.ErrClosed):
				return
			}
			select { // the process has no descriptor to spare
			case <-time.After(handOverLimit):
			case <-left.Done():
			}
		}
	})
	return k, nil
}

// offer waits until Accept takes a connection, or an error. When the listener is left, nobody may.
func (k *keeping) offer(c net.Conn, err error) bool {
	a := accepted{err: err}
	if err == nil {
		a.Conn = k.add(c.(*net.UnixConn))
	}
	select {
	case k.ready <- a:
		return true
	case <-k.left.Done():
		if err == nil {
			_ = a.Close() // nobody has had it
		}
		return false
	}
}

// take takes a connection from a process before.
func (k *keeping) take(from net.Conn) {
	c, err := received(from)
	_ = from.Close() // it was there for one message
	if err == nil {
		k.offer(c, nil)
	}
}

func received(from net.Conn) (net.Conn, error) {
	if err := from.SetReadDeadline(time.Now().Add(handOverLimit)); err != nil {
		return nil, fmt.Errorf("taking a connection over: %w", err)
	}
	control := make([]byte, sys.CmsgSpace(descriptors.Size))
	_, n, _, _, err := unixOf(from).ReadMsgUnix(make([]byte, 1), control)
	files, invalid := descriptors.Received(control[:n])
	defer descriptors.CloseAll(files)
	if err := errors.Join(err, invalid); err != nil || len(files) != 1 {
		return nil, fmt.Errorf("taking a connection over: %d descriptors: %w", len(files), err)
	}
	c, err := net.FileConn(files[0])
	if err != nil {
		return nil, fmt.Errorf("taking a connection over: %w", err)
	}
	if _, is := c.(*net.UnixConn); !is {
		return nil, errors.Join(errors.New("taking a connection over: it is not of a unix socket"), c.Close())
	}
	return c, nil
}

// unixOf is the connection itself, which its listener may count.
func unixOf(c net.Conn) *net.UnixConn {
	if counted, is := c.(*placed); is {
		c = counted.Conn
	}
	return c.(*net.UnixConn)
}

// Accept implements net.Listener.
func (k *keeping) Accept() (net.Conn, error) {
	select {
	case a := <-k.ready:
		return a.Conn, a.err
	case <-k.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (k *keeping) Close() error {
	k.close()
	return k.end()
}

func (k *keeping) add(c *net.UnixConn) *kept {
	of := &kept{UnixConn: c, of: k, idle: true}
	of.changed.L = &of.mu
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[of] = true
	return of
}

func (k *keeping) remove(c *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c)
	if len(k.open) == 0 && k.empty != nil {
		close(k.empty)
		k.empty = nil
	}
}

// HandOver hands the connections of HTTP/1 of a listener of UnixFor over to the process that has taken over from it. Those that work on
// a request are closed when it is answered, which is waited for until ctx ends. It goes before what ends requests, such as a server's
// Shutdown, which closes connections by which one has just come. Of other listeners nothing is handed over.
func HandOver(ctx context.Context, l net.Listener) {
	if u, is := l.(*unixListener); is && u.keeping != nil && TakenOver(u) {
		u.keeping.leave(ctx)
	}
}

func (k *keeping) leave(ctx context.Context) {
	_ = k.end() // Close says what failed
	k.mu.Lock()
	open, empty := slices.Collect(maps.Keys(k.open)), make(chan struct{})
	if len(open) == 0 {
		close(empty)
	} else {
		k.empty = empty
	}
	k.mu.Unlock()
	for _, c := range open {
		if ctx.Err() == nil {
			c.leave()
		}
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// isLeft tells whether connections go to another process, or the same. A connection by which a request is answered is closed then, and
// the answer says so.
func (k *keeping) isLeft() bool { return k != nil && k.left.Err() != nil }

// pending calls do for the connections that wait to be accepted.
func pending(l net.Listener, do func(net.Conn)) {
	raw, err := l.(*net.UnixListener).SyscallConn()
	for err == nil {
		fd, failed := -1, error(nil)
		err = errors.Join(raw.Control(func(l uintptr) { fd, _, failed = sys.Accept4(int(l), sys.SOCK_NONBLOCK|sys.SOCK_CLOEXEC) }), failed)
		if err != nil {
			return // none is left, or none can be had
		}
		f := os.NewFile(uintptr(fd), "connection")
		if c, err := net.FileConn(f); err == nil {
			do(c)
		}
		_ = f.Close() // FileConn has made another
	}
}

// hand hands a connection to the process that has the path now.
func (k *keeping) hand(c *net.UnixConn) error {
	to, err := net.DialTimeout("unix", k.path+handedOver, handOverLimit)
	if err != nil {
		return fmt.Errorf("handing a connection over: %w", err)
	}
	defer to.Close() // a failure to write says what there is to say
	if err := to.SetWriteDeadline(time.Now().Add(handOverLimit)); err != nil {
		return fmt.Errorf("handing a connection over: %w", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("handing a connection over: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, _, failed = to.(*net.UnixConn).WriteMsgUnix([]byte{1}, sys.UnixRights(int(fd)), nil)
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("handing a connection over: %w", err)
	}
	return nil
}

// kept is a connection of a gateway.
type kept struct {
	*net.UnixConn
	of *keeping

	mu       sync.Mutex
	changed  sync.Cond // in, come, or over
	deadline time.Time // for reading, as the server has set it
	known    bool      // something was read
	h2       bool      // by HTTP/2
	idle     bool      // the server waits for a request
	in       bool      // somebody reads
	come     bool      // a part of a request was read, for which the server waits
	early    bool      // the last thing that was read is a part of a request for which it did not wait yet
	over     bool      // the gateway has closed it
	leaving  bool      // nobody is to read on
	closed   bool
}

// heard is the ConnState of the server.
func heard(c net.Conn, state http.ConnState) {
	if of, is := c.(*placed); is {
		if k, is := of.Conn.(*kept); is {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.idle, k.come = state == http.StateIdle || state == http.StateNew, false
			if state == http.StateIdle && k.of.isLeft() {
				k.pass()
			}
		}
	}
}

// Read implements net.Conn.
func (c *kept) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.in = true
	c.mu.Unlock()
	n, err := c.UnixConn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = false
	if n > 0 {
		if !c.known {
			const preface = "PRI"
			c.known, c.h2 = true, string(p[:min(n, len(preface))]) == preface[:min(n, len(preface))]
			if c.h2 { // it is the server that ends it
				c.of.remove(c)
			}
		}
		c.come, c.early = c.idle, !c.idle && len(p) == 1 // net/http looks ahead with one byte
		if c.leaving {
			c.leaving = false
			err = errors.Join(err, c.UnixConn.SetReadDeadline(c.deadline))
		}
	}
	c.over = c.over || err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	c.changed.Broadcast()
	return n, err
}

// SetReadDeadline implements net.Conn.
func (c *kept) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	if c.leaving {
		return nil
	}
	return c.UnixConn.SetReadDeadline(at)
}

// Close implements net.Conn. A server that is to end closes connections that wait for a request. If another process has the path,
// they go there; if a request has just come, it is served before.
func (c *kept) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle && !c.early && !c.h2 && c.of.takenOver() && c.stays() {
		return nil
	}
	return c.close()
}

// leave closes the connection if it waits for a request, also for the first one.
func (c *kept) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
}

// pass has it go to another process, if it waits for a request. The caller holds mu.
func (c *kept) pass() {
	if c.idle && !c.early && !c.h2 && c.of.takenOver() && !c.stays() {
		_ = c.close() // the server may have been faster
	}
}

// stays hands the connection over, unless a request has come by it. The caller holds mu.
func (c *kept) stays() bool {
	if c.in && !c.come {
		c.leaving = true
		_ = c.UnixConn.SetReadDeadline(time.Unix(1, 0)) // no connection that is open refuses it
		for c.in && !c.come && !c.over {
			c.changed.Wait()
		}
		if !c.idle { // the server has the request already
			return true
		}
	}
	if !c.over && !c.come && !c.closed {
		_ = c.of.hand(c.UnixConn) // without it the connection ends, as any server's may
	}
	return c.come && !c.over && !c.h2
}

func (c *kept) close() error {
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.of.remove(c)
	return c.UnixConn.Close()
}
