// Package streams is the conversation in which a node's daemon has the shim of a sandbox dial in the sandbox's
// network, and copy between streams that then need the daemon no more. The shim asks in it what a program's
// connect(2) gets.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

const (
	// Timeout bounds what takes less than a millisecond: the shim's first message, and the sending of each.
	Timeout = 2 * time.Second

	socketName = "streams.sock"
	// messageLimit is longer than any message, in bytes: one with TargetsLimit addresses has some 4,000.
	messageLimit = 8 << 10
	// questionsLimit is how many questions of one side are answered at a time; the others fail at once.
	questionsLimit = 64
	// descriptorsLimit is how many a message may carry: those of two streams.
	descriptorsLimit = 2
)

// TargetsLimit is how many addresses a sandbox may have that its program is connected to by the daemon.
const TargetsLimit = 64

// Path is the path of the socket, by that of the daemon's gRPC.
func Path(socket string) string { return filepath.Join(filepath.Dir(socket), socketName) }

// message is one of either side: a question, an answer, or a word that has no answer.
type message struct {
	// Sandbox begins a conversation.
	Sandbox string `json:"sandbox,omitempty"`
	// ID is the question's, by the count of who asks. A word has none.
	ID uint64 `json:"id,omitempty"`

	// Dial is an address that the shim is to connect to, within the time of Timeout.
	Dial    string `json:"dial,omitempty"`
	Timeout string `json:"timeout,omitempty"`
	// Join: the shim is to copy between the message's descriptors.
	Join bool `json:"join,omitempty"`
	// Connect is an address that a program connects to.
	Connect string `json:"connect,omitempty"`
	// Ahead: no program does so yet.
	Ahead bool `json:"ahead,omitempty"`
	// End is the id of such a question that was not answered by Pass: the word has the other end of the program's connection.
	// Without a descriptor there is none.
	End uint64 `json:"end,omitempty"`

	// Error is why a question has no other answer, and Errno the name of the system's error.
	Error string `json:"error,omitempty"`
	Errno string `json:"errno,omitempty"`
	// Pass: the program connects on its own.
	Pass bool `json:"pass,omitempty"`

	// Targets are all the addresses of which the shim asks.
	Targets *[]string `json:"targets,omitempty"`
	// Lapse is why the shim does not ask of any.
	Lapse string `json:"lapse,omitempty"`
	// Callers are the addresses from which this daemon asks the sandbox's program.
	Callers *[]string `json:"callers,omitempty"`
	// Stop: the shim is to end the program of the container whose network it has closed.
	Stop bool `json:"stop,omitempty"`
	// Open: the shim is to open that network again.
	Open bool `json:"open,omitempty"`
	// Rekeyed: joined streams have ended, since the server has changed its TLS keys.
	Rekeyed bool `json:"rekeyed,omitempty"`
}

func (m message) asks() bool { return m.Dial != "" || m.Join || m.Connect != "" }

// parcel is a message with its descriptors.
type parcel struct {
	message
	files []*os.File
}

// errOver is why questions have no answer: the other side has gone.
var errOver = errors.New("the conversation is over")

// conversation is what both sides have of it.
type conversation struct {
	conn *net.UnixConn
	// answer answers a question, whose files it closes. Those of the answer are closed when they are sent; sent
	// hears, if it is not nil, whether they were.
	answer func(ctx context.Context, question parcel) (answer parcel, sent func(error))
	// hear takes what is no question, and leaves the files.
	hear func(parcel)
	over chan struct{}
	work sync.WaitGroup
	// fetches are the questions ahead that are open: one for each of the most targets.
	fetches chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan parcel
}

func newConversation(c *net.UnixConn) *conversation {
	return &conversation{conn: c, over: make(chan struct{}), fetches: make(chan struct{}, TargetsLimit),
		waiting: map[uint64]chan parcel{}}
}

// run holds the conversation until one side ends it, or ctx ends. It returns when all work is done that belongs to it.
func (c *conversation) run(ctx context.Context) error {
	defer c.work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
	defer close(c.over)
	places := make(chan struct{}, questionsLimit)
	for {
		p, err := receive(c.conn)
		if err != nil {
			return err
		}
		switch {
		case p.asks() && p.ID != 0:
			select {
			case places <- struct{}{}:
				c.work.Go(func() {
					defer func() { <-places }()
					c.reply(ctx, p)
				})
			default:
				descriptors.CloseAll(p.files)
				c.work.Go(func() { _ = c.send(parcel{message: message{ID: p.ID, Error: "too many questions"}}) })
			}
		case p.ID != 0:
			c.mu.Lock()
			asked := c.waiting[p.ID]
			delete(c.waiting, p.ID)
			c.mu.Unlock()
			if asked == nil { // the one who asked has given up
				descriptors.CloseAll(p.files)
				continue
			}
			asked <- p
		default:
			c.hear(p)
			descriptors.CloseAll(p.files)
		}
	}
}

func (c *conversation) reply(ctx context.Context, question parcel) {
	answer, sent := c.answer(ctx, question)
	answer.ID = question.ID
	err := c.send(answer)
	descriptors.CloseAll(answer.files)
	if sent != nil {
		sent(err)
	}
}

// ask returns the answer to a question. Its files are the caller's to close. sent: the other side may have the
// question.
func (c *conversation) ask(ctx context.Context, p parcel) (answer parcel, sent bool, err error) {
	asked := make(chan parcel, 1)
	c.mu.Lock()
	c.last++
	p.ID = c.last
	c.waiting[p.ID] = asked
	c.mu.Unlock()
	if err := c.send(p); err != nil {
		c.forget(p.ID, asked)
		return answer, false, fmt.Errorf("%w: %w", errOver, err)
	}
	select {
	case answer = <-asked:
		return answer, true, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.over:
		err = errOver
	}
	c.forget(p.ID, asked)
	return parcel{}, true, err
}

// forget gives a question up, whose answer may just have come.
func (c *conversation) forget(id uint64, asked chan parcel) {
	c.mu.Lock()
	_, waits := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if !waits {
		select {
		case p := <-asked: // the one who took it from the map sends it
			descriptors.CloseAll(p.files)
		case <-c.over:
		}
	}
}

// send ends the conversation if the other side does not read.
func (c *conversation) send(p parcel) error {
	said, err := json.Marshal(p.message)
	if err != nil {
		return fmt.Errorf("saying it in JSON: %w", err)
	}
	var rights []byte
	if len(p.files) > 0 {
		var fds []int
		for _, f := range p.files {
			fds = append(fds, number(f))
		}
		rights = unix.UnixRights(fds...)
	}
	// Another's message may get the later deadline, no earlier one.
	if err := c.conn.SetWriteDeadline(time.Now().Add(Timeout)); err != nil {
		return err
	}
	if _, _, err := c.conn.WriteMsgUnix(said, rights, nil); err != nil {
		_ = c.conn.Close() // the reader hears of it
		return fmt.Errorf("sending a message: %w", err)
	}
	return nil
}

// number is that of a file's descriptor while the file is open. Fd would have the connection that it is of block.
func number(f *os.File) (n int) {
	n = -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = int(fd) }) // then it is closed
	}
	return n
}

// receive returns the next message. Its files are the caller's to close.
func receive(c *net.UnixConn) (p parcel, err error) {
	said := make([]byte, messageLimit+1) // one more than there is to be
	control := make([]byte, unix.CmsgSpace(descriptorsLimit*descriptors.Size))
	n, controls, flags, _, err := c.ReadMsgUnix(said, control)
	var invalid error
	p.files, invalid = descriptors.Received(control[:controls])
	if err == nil {
		err = invalid
	}
	if err == nil && (n > messageLimit || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0) {
		err = errors.New("too long, or with too many descriptors")
	}
	if err == nil {
		err = json.Unmarshal(said[:n], &p.message)
	}
	if err != nil {
		descriptors.CloseAll(p.files)
		return parcel{}, fmt.Errorf("receiving a message: %w", err)
	}
	return p, nil
}
