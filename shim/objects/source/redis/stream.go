package redis

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const (
	// piece is how many bytes one GETRANGE asks for at most. The server, which serves one
	// command at a time, copies that many before the next client's turn: a fraction of a
	// millisecond.
	piece = 512 << 10

	// ahead is how many pieces are asked for beyond the one that is read. With one, at least
	// 512 KiB are on their way by each connection all the time: by 8 of them
	// (ranged.Connections) 4 MiB, more than a link of 500 Mbit/s and 50 ms holds. The server
	// keeps two replies per connection.
	ahead = 1
)

// errClosed is a stream that its reader has given up.
var errClosed = errors.New("closed before its end")

// stream is a part of a value, whose bytes are handed out as they arrive. It asks for them
// piece by piece, and for the next piece before the last one is there, so that the server
// neither waits for a question nor answers in a burst.
type stream struct {
	object *object
	line   *line
	stop   func() bool // no longer ends the line with the context

	at, end int64 // what is still to be read
	asked   int64 // up to where the server has been asked
	left    int64 // how much of at's reply is still to be read; 0: its header, too
	err     error // why nothing more comes
}

// stream asks for the bytes from at up to end, at least one, and returns when they begin to
// come. It ends with ctx; whoever does not read it to its end closes it.
func (o *object) stream(ctx context.Context, at, end int64) (*stream, error) {
	s := &stream{object: o, at: at, end: end}
	_, err := o.lines.begin(ctx, func(l *line) error { return s.begin(ctx, l) })
	if err != nil {
		return nil, o.failure(err, true)
	}
	return s, nil
}

// begin asks by a line, and reads until the first byte.
func (s *stream) begin(ctx context.Context, l *line) error {
	s.line, s.asked = l, s.at
	s.stop = context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	err := s.ask(1 + ahead)
	if err == nil {
		err = l.greeted()
	}
	if err == nil {
		err = s.header()
	}
	if err != nil {
		s.stop()
	}
	return err
}

// ask asks for the next pieces, up to n of them.
func (s *stream) ask(n int) error {
	var commands [][]string
	for ; n > 0 && s.asked < s.end; n-- {
		to := min(s.asked+piece, s.end)
		commands = append(commands, getRange(s.object.key, s.asked, to))
		s.asked = to
	}
	if len(commands) == 0 {
		return nil
	}
	return s.line.write(commands...)
}

// header reads what comes before the bytes of a reply.
func (s *stream) header() error {
	kind, text, err := readHeader(s.line.in)
	if err == nil && kind != '$' {
		err = errProtocol
	}
	size := min(piece, s.end-s.at)
	switch {
	case err != nil:
		s.line.broken = true // A refusal, too, may be what the server has hung up with.
		return err
	case text != fmt.Sprint(size): // The value has become shorter, or has gone.
		return source.Changed(s.object.config.Store, s.object.ref)
	}
	s.left = size
	return nil
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.left == 0 {
		if err := s.header(); err != nil {
			return 0, s.fail(err)
		}
	}
	n, err := s.line.in.Read(p[:min(int64(len(p)), s.left)])
	s.at += int64(n)
	s.left -= int64(n)
	if err == nil && n > 0 && s.left == 0 {
		err = s.next()
	}
	if err != nil {
		err = s.fail(err)
	}
	return n, err
}

// next ends a reply, and asks for another one. After the last one the line is for others.
func (s *stream) next() error {
	if err := readEnd(s.line.in); err != nil {
		return err
	}
	if s.at < s.end {
		return s.ask(1)
	}
	s.line.broken = !s.stop()
	s.object.lines.put(s.line)
	s.err = io.EOF
	return nil
}

// fail ends a stream whose replies have not all been read: its line is of no more use.
func (s *stream) fail(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	s.err = s.object.failure(err, true)
	s.stop()
	s.line.close()
	return s.err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	if s.err == nil {
		_ = s.fail(errClosed)
	}
	return nil
}
