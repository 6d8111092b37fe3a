package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
)

// Redis returns a proxy for a Redis at host:port. decide is asked about each batch of commands
// that names a key which begins with prefix, by that key; the fault happens to the bytes that
// answer them.
func Redis(backend, prefix string, decide func(key string) Fault) (*Server, error) {
	return start(backend, func(s *Server, client, store net.Conn) {
		l := &redisLine{to: faulty{client: client}}
		gone := make(chan struct{})
		s.running.Go(func() {
			defer close(gone)
			// Either direction's end is the other's.
			defer store.Close()
			defer client.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := client.Read(buf)
				if n > 0 {
					if key := named(buf[:n], prefix); key != "" {
						l.asked(key, decide(key))
					}
					if _, err := store.Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		})
		if l.copy(store) == errStalled {
			<-gone
		}
	})
}

// named returns the key of a batch of commands (RESP: a length, a line's end, the key, a
// line's end).
func named(commands []byte, prefix string) string {
	at := bytes.Index(commands, []byte("\n"+prefix))
	if at < 0 {
		return ""
	}
	key, _, _ := bytes.Cut(commands[at+1:], []byte("\r"))
	return string(key)
}

// redisLine is one connection's answers.
type redisLine struct {
	mu  sync.Mutex
	key string // that was asked for last
	to  faulty
}

// asked is told of a batch. A value is asked for piece by piece, and ahead: a piece to which
// nothing happens does not lift the fault of one that is still on its way.
func (l *redisLine) asked(key string, f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key == l.key && f.Kind == None {
		return
	}
	l.key, l.to.fault, l.to.written = key, f, 0
}

// errStalled ends a line of which nothing comes any more, but not its connection.
var errStalled = errors.New("the line stalls")

func (l *redisLine) copy(store io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := store.Read(buf)
		if n > 0 {
			if err := l.write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func (l *redisLine) write(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.to.fault; f.Kind == Stalls && l.to.written+int64(len(p)) > f.At {
		return errStalled
	}
	_, err := l.to.Write(p)
	return err
}
