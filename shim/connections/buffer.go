package connections

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/headstart-mesh/headstart/shim/databuffer"
	"github.com/headstart-mesh/headstart/shim/session"
)

// buffer answers a program's start-up, and passes on what it says when it is its turn. It closes the connection.
func (s *Server) buffer(sb *sandbox, name string, d *destination, client net.Conn) {
	defer client.Close()
	began := time.Now()
	c := &caller{server: s, sb: sb, name: name, d: d}
	begun, redis, err := s.begin(sb, c, client)
	if err != nil || begun == nil {
		if err != nil {
			s.tell(sb, name, c.way, began, err)
		}
		return // it has been told why
	}
	s.tell(sb, name, c.way, began, nil)
	of := databuffer.Session{Instance: sb.id, Unread: begun.Unread, Protocol: begun.Version, Client: client, Server: begun.Conn}
	if begun.DB == redis.DB {
		of.Store = s.store(sb, name, d)
	}
	s.pumped.Add(1)
	defer s.pumped.Add(-1)
	s.config.Buffer.Pass(sb.ctx, of)
}

func (s *Server) begin(sb *sandbox, c *caller, client net.Conn) (*session.Begun, session.Redis, error) {
	p, err := c.d.protocol(c.d.tls, false)
	if err != nil {
		c.d.note(err)
		return nil, session.Redis{}, err
	}
	redis, is := p.(session.Redis)
	if !is {
		return nil, redis, fmt.Errorf("destination %q is of no kind that functions use before their turn", c.name)
	}
	ctx, cancel := context.WithTimeout(sb.ctx, startTimeout)
	defer cancel()
	begun, err := redis.Begin(ctx, client, c)
	if begun != nil {
		c.took(begun.Start)
	}
	return begun, redis, err
}

// store is a destination as a sandbox's programs use it.
func (s *Server) store(sb *sandbox, name string, d *destination) *databuffer.Store {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.stores[name] == nil {
		of := databuffer.NewStore(name, func(ctx context.Context) (net.Conn, error) {
			w, err := s.connect(ctx, sb, d, "")
			if err != nil {
				return nil, err
			}
			return w.session.Conn, nil
		})
		sb.stores[name] = of
		context.AfterFunc(sb.ctx, of.Close)
	}
	return sb.stores[name]
}
