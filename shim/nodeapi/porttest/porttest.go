// Package porttest finds ports for programs that tests start, and that are told where to
// listen.
package porttest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports that are tried lie below Linux's ephemeral ones (net.ipv4.ip_local_port_range:
// from 32768), of which any connection may take one before the program listens.
const (
	lowest  = 15_000
	highest = 32_767
	tries   = 100
)

// given are the ports that this process was given, which it may not listen on yet.
var given sync.Map

// Free returns a TCP port that nothing on this machine listened on a moment ago, another one each
// time.
func Free(t testing.TB) uint16 {
	t.Helper()
	var err error
	for range tries {
		port := lowest + rand.IntN(highest-lowest+1)
		var l net.Listener
		if l, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			_ = l.Close() // it has served its purpose
			if _, twice := given.LoadOrStore(port, true); twice {
				continue
			}
			return uint16(port)
		}
	}
	t.Fatal("finding a free port: ", err)
	return 0
}

// Address is a Free port of 127.0.0.1.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(Free(t))))
}
