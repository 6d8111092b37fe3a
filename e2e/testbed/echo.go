package testbed

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// echo is a server that sends back what it gets.
type echo struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// startEcho starts one in a network namespace, by TLS if it has a certificate.
func startEcho(namespace string, at netip.AddrPort, secured *pki.Pair) (*echo, error) {
	e := &echo{conns: map[net.Conn]bool{}}
	err := nsthread.Run(namespace, func() (err error) {
		e.listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	if secured != nil {
		pair, err := tls.X509KeyPair(secured.Cert, secured.Key)
		if err != nil {
			_ = e.listener.Close() // nobody has used it
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
		e.listener = tls.NewListener(e.listener, config)
	}
	e.wg.Go(e.accept)
	return e, nil
}

func (e *echo) accept() {
	for {
		c, err := e.listener.Accept()
		if err != nil {
			return // it is closed
		}
		e.mu.Lock()
		e.conns[c] = true
		e.mu.Unlock()
		e.wg.Go(func() {
			_, _ = io.Copy(c, c) // the client sees how it ends
			_ = c.Close()        // likewise
			e.mu.Lock()
			delete(e.conns, c)
			e.mu.Unlock()
		})
	}
}

// close ends the server and its connections.
func (e *echo) close() {
	_ = e.listener.Close() // Accept says so
	e.mu.Lock()
	for c := range e.conns {
		_ = c.Close() // its copying ends
	}
	e.mu.Unlock()
	e.wg.Wait()
}
