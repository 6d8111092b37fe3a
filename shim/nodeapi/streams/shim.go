package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

const (
	// StreamsLimit is how many pairs of streams a sandbox may have joined, which take six descriptors each.
	StreamsLimit = 256
	// lastBytes is how long joined streams have when the sandbox ends: their program has, and its last bytes are on
	// their way.
	lastBytes = time.Second
	// aheadLimit is how long a connection that was handed over ahead waits for its program: nobody watches it.
	aheadLimit = 30 * time.Second
	// whyLimit bounds the words of a lapse, in bytes: runc may say much.
	whyLimit = 512
)

// retry paces the search for a daemon: one that is replaced is away for less than a second. Tests shorten it.
var retry = 200 * time.Millisecond

// lookAgain paces the look at the socket's path while a daemon is there: the next one waits for the shim meanwhile.
const lookAgain = 500 * time.Millisecond

// Shim is a sandbox's side.
type Shim struct {
	sandbox   string
	dial      Dial
	connected Connected

	mu      sync.Mutex
	daemon  *conversation // with the newest one; nil: it is away
	targets map[netip.AddrPort]bool
	ahead   map[netip.AddrPort]*os.File // nil: it was asked for
	spare   []Ends
	filling bool
	lapse   message
	ended   bool
	pairs   map[*pair]bool
	joined  sync.WaitGroup
}

// NewShim returns the side of a sandbox whose network dial dials in, and which connected connects within; nil: its
// programs connect on their own.
func NewShim(sandbox string, dial Dial, connected Connected) *Shim {
	return &Shim{sandbox: sandbox, dial: dial, connected: connected, pairs: map[*pair]bool{},
		ahead: map[netip.AddrPort]*os.File{}}
}

// Keep converses with the daemon at a socket, and with the one after that, until ctx ends. Then it ends the streams,
// and returns when they are over. A daemon that is replaced may still need the shim when the next one is there: their
// conversations overlap.
func (s *Shim) Keep(ctx context.Context, socket string) {
	defer s.endStreams()
	var conversing sync.WaitGroup
	defer conversing.Wait()
	endBefore := func() {}
	defer func() { endBefore() }()
	for ctx.Err() == nil {
		here, _ := os.Stat(socket) // if it is another's when it is dialled, its daemon hears the shim twice
		one, end := context.WithCancel(ctx)
		over := make(chan struct{})
		conversing.Go(func() {
			defer close(over)
			_ = s.converse(one, socket) // an earlier daemon has no such socket, and each may end
		})
		if !replaced(ctx, socket, here, over) {
			end()
			continue
		}
		endBefore() // more than two no update has
		endBefore = end
	}
}

// replaced waits until another daemon may be at the socket. It tells whether the conversation with the one before goes
// on.
func replaced(ctx context.Context, socket string, here os.FileInfo, over <-chan struct{}) bool {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-over:
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
			return false
		case <-look.C:
			now, err := os.Stat(socket)
			// The number of a file that is gone may be another's, at another time.
			if err == nil && (!os.SameFile(here, now) || !here.ModTime().Equal(now.ModTime())) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (s *Shim) converse(ctx context.Context, socket string) error {
	dialling, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialling, "unixpacket", socket)
	if err != nil {
		return fmt.Errorf("connecting to the daemon: %w", err)
	}
	defer conn.Close()
	c := newConversation(conn.(*net.UnixConn))
	c.answer, c.hear = s.answer, func(m message) { s.hear(c, m) }
	s.mu.Lock()
	// Before the daemon may ask, and before anybody else says a word.
	err = c.send(parcel{message: message{Sandbox: s.sandbox}})
	if err == nil && s.lapse.Lapse != "" {
		err = c.send(parcel{message: s.lapse})
	}
	if err == nil {
		s.turn(c)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.daemon == c {
			s.turn(nil)
		}
	}()
	return c.run(ctx)
}

// turn has programs' connections asked about in another conversation, whose daemon knows nothing of the last one's; the
// caller holds mu.
func (s *Shim) turn(to *conversation) {
	s.daemon, s.targets = to, nil
	s.drop(nil)
}

// Lapse tells the daemon, and each later one, that programs' connections are not asked about, and why, in words.
func (s *Shim) Lapse(reason, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapse = message{Lapse: reason, Error: why[:min(len(why), whyLimit)]}
	if s.daemon != nil {
		_ = s.daemon.send(parcel{message: s.lapse}) // the next one is told
	}
}

// Targets tells whether the daemon is to be asked about a connection to an address. While it is away there is none.
func (s *Shim) Targets(at netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.targets[canonical(at)]
}

// Ahead returns a connection to an address that the daemon has handed over ahead, nil if there is none.
func (s *Shim) Ahead(at netip.AddrPort) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = canonical(at)
	f := s.ahead[at]
	if f == nil {
		return nil
	}
	s.ahead[at] = nil
	poll := []unix.PollFd{{Fd: int32(number(f)), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(poll, 0); n == 0 && err == nil {
		return f
	}
	_ = f.Close() // its other side has ended it
	return nil
}

// fetch asks for connections ahead, once for each target of a conversation.
func (s *Shim) fetch(c *conversation, at netip.AddrPort) {
	ctx, cancel := context.WithTimeout(context.Background(), aheadLimit)
	defer cancel()
	f, err := s.ask(ctx, c, message{Connect: at.String(), Ahead: true})
	if err != nil || f == nil {
		return // the daemon is asked again when the program connects
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != c || !s.targets[at] {
		_ = f.Close() // nothing was said by it
		return
	}
	s.ahead[at] = f
	time.AfterFunc(aheadLimit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ahead[at] == f {
			s.ahead[at] = nil
			_ = f.Close()
		}
	})
}

// drop closes what was handed over ahead for what is no target; the caller holds mu.
func (s *Shim) drop(targets map[netip.AddrPort]bool) {
	for at, f := range s.ahead {
		if !targets[at] {
			delete(s.ahead, at)
			descriptors.CloseAll([]*os.File{f})
		}
	}
}

// Connect asks the daemon for a connection to an address; nil means that the program connects on its own.
func (s *Shim) Connect(ctx context.Context, at netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	c := s.daemon
	s.mu.Unlock()
	if c == nil || s.connected == nil {
		return nil, nil
	}
	return s.ask(ctx, c, message{Connect: canonical(at).String()})
}

// ask offers the daemon one end of a connection, and returns the other one if the daemon takes it.
func (s *Shim) ask(ctx context.Context, c *conversation, question message) (*os.File, error) {
	e, err := s.ends(ctx)
	if err != nil {
		return nil, err
	}
	answer, _, err := c.ask(ctx, parcel{message: question, files: []*os.File{e.Daemon}})
	_ = e.Daemon.Close() // the daemon has its own
	descriptors.CloseAll(answer.files)
	if err == nil {
		err = answer.err()
	}
	if err == nil && len(answer.files) > 0 {
		err = errors.New("an answer with descriptors, which are of the daemon's network")
	}
	if err == nil && !answer.Pass {
		return e.Program, nil
	}
	_ = e.Program.Close() // nothing was said by it
	if err != nil {
		err = fmt.Errorf("asking the daemon about a connection: %w", err)
	}
	return nil, err
}

func (s *Shim) hear(c *conversation, m message) {
	if m.Targets == nil || len(*m.Targets) > TargetsLimit || s.connected == nil {
		return
	}
	targets := make(map[netip.AddrPort]bool, len(*m.Targets))
	for _, t := range *m.Targets {
		if at, err := netip.ParseAddrPort(t); err == nil {
			targets[canonical(at)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != c {
		return // it is of a daemon that is replaced
	}
	s.targets = targets
	s.drop(targets)
	if len(targets) > 0 {
		s.fill()
	}
	for at := range targets {
		if _, asked := s.ahead[at]; !asked && c != nil {
			select {
			case c.fetches <- struct{}{}:
			default:
				continue // the daemon changes its targets faster than it answers
			}
			s.ahead[at] = nil
			c.work.Go(func() {
				defer func() { <-c.fetches }()
				s.fetch(c, at)
			})
		}
	}
}

func (s *Shim) answer(ctx context.Context, question parcel) (answer parcel, sent func(error)) {
	defer descriptors.CloseAll(question.files)
	var err error
	switch {
	case question.Dial != "":
		answer.files, err = s.dialled(ctx, question.message)
	case question.Join:
		var p *pair
		if p, err = s.take(question.files); err == nil {
			return answer, func(err error) { s.join(p, err) }
		}
	default:
		err = errors.New("not a question for a shim")
	}
	if err != nil {
		answer.message = failure(err)
	}
	return answer, nil
}

func (s *Shim) dialled(ctx context.Context, m message) ([]*os.File, error) {
	at, err := parseAddress(m.Dial)
	if err != nil {
		return nil, err
	}
	timeout, err := time.ParseDuration(m.Timeout)
	if err != nil || timeout <= 0 || timeout > dialLimit {
		timeout = dialLimit
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := s.dial(ctx, at)
	if err != nil {
		return nil, err
	}
	f, err := fileOf(conn)
	if err := errors.Join(err, conn.Close()); err != nil {
		descriptors.CloseAll([]*os.File{f})
		return nil, err
	}
	return []*os.File{f}, nil
}

// fileOf is the descriptor of a connection once more.
func fileOf(c net.Conn) (*os.File, error) {
	s, is := c.(interface{ File() (*os.File, error) })
	if !is {
		return nil, fmt.Errorf("a connection of type %T has no descriptor", c)
	}
	return s.File()
}

// take counts a pair of streams.
func (s *Shim) take(files []*os.File) (*pair, error) {
	if len(files) != len(pair{}) {
		return nil, fmt.Errorf("%d descriptors to be joined", len(files))
	}
	var p pair
	for i, f := range files {
		var err error
		if p[i], err = streamOf(f); err != nil {
			if i > 0 {
				err = errors.Join(err, p[0].Close())
			}
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pairs) >= StreamsLimit || s.ended {
		p.close()
		return nil, fmt.Errorf("the sandbox has %d joined streams, or has ended", len(s.pairs))
	}
	s.pairs[&p] = true
	return &p, nil
}

// join joins a pair, unless the daemon did not hear that it will, in the background.
func (s *Shim) join(p *pair, unheard error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unheard != nil || s.ended {
		delete(s.pairs, p)
		p.abort()
		return
	}
	s.joined.Go(func() {
		err := p.join()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pairs, p)
		if errors.Is(err, plaintext.ErrRekeyed) && s.daemon != nil {
			_ = s.daemon.send(parcel{message: message{Rekeyed: true}}) // it is counted, if a daemon is there
		}
	})
}

func (s *Shim) endStreams() {
	s.mu.Lock()
	s.ended = true
	for p := range s.pairs {
		p.end(lastBytes)
	}
	s.mu.Unlock()
	s.joined.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.spare {
		e.close()
	}
}

// text is an address list of a message.
func text(all []netip.AddrPort) *[]string {
	list := make([]string, 0, len(all))
	for _, at := range all {
		list = append(list, canonical(at).String())
	}
	return &list
}
