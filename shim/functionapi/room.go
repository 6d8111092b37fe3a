package functionapi

import (
	"context"
	"net"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// Each read has room for what it passes on, in the daemon and in the kernel, for as long as its
// function takes nothing of it. Few have much of it, which costs all of them 17 MiB, and the
// others some 50 KiB each.
const (
	// roomLarge and roomSmall are how much of an input is passed on at a time, in bytes.
	roomLarge, roomSmall = 64 << 10, 4 << 10
	// roomsLarge is how many reads of a node have the large one.
	roomsLarge = 64
	// sendLarge and sendSmall are how much the kernel keeps of an answer, in bytes, of which it
	// takes the double (socket(7), SO_SNDBUF). The first is what sockets have if nobody says.
	sendLarge, sendSmall = 104 << 10, 8 << 10
)

// connection is the key of a request's connection in its context.
type connection struct{}

// withConnection is the ConnContext of the sockets' servers.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(serve.WithConnection(ctx, c), connection{}, c)
}

// room is for what a read of a namespace's sandbox passes on, until leave is called.
func (s *Server) room(r *http.Request, namespace string) (room []byte, leave func()) {
	leave, _ = s.large.Try(namespace, "reads")
	if leave == nil {
		keep(r, sendSmall)
		return make([]byte, roomSmall), func() {}
	}
	keep(r, sendLarge)
	return make([]byte, roomLarge), leave
}

// keep has the kernel keep so many bytes of the answers on the request's connection.
func keep(r *http.Request, bytes int) {
	c, _ := r.Context().Value(connection{}).(net.Conn)
	if of, is := c.(interface{ NetConn() net.Conn }); is {
		c = of.NetConn()
	}
	if socket, is := c.(*net.UnixConn); is {
		_ = socket.SetWriteBuffer(bytes) // of a connection that has ended already
	}
}
