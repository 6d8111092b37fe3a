package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

const (
	// StreamsLimit is how many pairs of streams a sandbox may have joined, which take six descriptors each.
	StreamsLimit = 256
	// lastBytes is how long joined streams have when the sandbox ends: their program has, and its last bytes are on
	// their way.
	lastBytes = time.Second
	// callersLimit is how many addresses a daemon may ask from: those of a pod.
	callersLimit = 8
	// whyLimit bounds the words of a lapse, in bytes: runc may say much.
	whyLimit = 512
)

// retry paces the search for a daemon: one that is replaced is away for less than a second. Tests shorten it.
var retry = 200 * time.Millisecond

// lookAgain paces the look at the socket's path while a daemon is there: the next one waits for the shim meanwhile.
const lookAgain = 500 * time.Millisecond

// Shim is a sandbox's side.
type Shim struct {
	// Callers hears from which addresses all daemons that are there ask the sandbox's program. It is set before Keep; nil: nobody hears.
	Callers func([]netip.Addr)
	// Stop ends the sandbox's program. It is set before Keep; nil: nothing does.
	Stop func()
	// Open opens the sandbox's network that was closed. It is set before Keep; nil: nothing does.
	Open func()

	sandbox string
	dial    Dial
	listen  Listen

	mu      sync.Mutex
	daemon  *conversation // with the newest one; nil: it is away
	callers map[*conversation][]netip.Addr
	targets map[netip.AddrPort]*target // that daemon's, by their addresses and by those of their listeners
	places  map[netip.AddrPort]*target // the last daemon's: programs stay connected to the listeners
	lapse   message
	ended   bool
	pairs   map[*pair]bool
	joined  sync.WaitGroup

	connecting sync.Mutex // of the listeners, after mu
}

// NewShim returns the side of a sandbox whose network dial dials in, and listen listens in; nil: its programs connect on
// their own.
func NewShim(sandbox string, dial Dial, listen Listen) *Shim {
	return &Shim{sandbox: sandbox, dial: dial, listen: listen, pairs: map[*pair]bool{}, places: map[netip.AddrPort]*target{},
		callers: map[*conversation][]netip.Addr{}}
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
		s.refuse()
		here, _ := os.Stat(socket) // if it is another's when it is dialled, its daemon hears the shim twice
		one, end := context.WithCancel(ctx)
		over := make(chan struct{})
		conversing.Go(func() {
			defer close(over)
			_ = s.converse(one, socket) // an earlier daemon has no such socket, and each may end
		})
		if !s.replaced(ctx, socket, here, over) {
			end()
			continue
		}
		endBefore() // more than two no update has
		endBefore = end
	}
}

// replaced waits until another daemon may be at the socket. It tells whether the conversation with the one before goes
// on.
func (s *Shim) replaced(ctx context.Context, socket string, here os.FileInfo, over <-chan struct{}) bool {
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
			s.refuse()
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
	c.answer, c.hear = s.answer, func(p parcel) { s.hear(c, p.message) }
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
		delete(s.callers, c)
	}()
	return c.run(ctx)
}

// turn has programs' connections asked about in another conversation, whose daemon knows nothing of the last one's; the
// caller holds mu.
func (s *Shim) turn(to *conversation) {
	s.daemon, s.targets = to, nil
	for _, t := range s.places {
		t.asked, t.ahead = false, nil
	}
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

func (s *Shim) hear(c *conversation, m message) {
	switch {
	case m.Callers != nil && s.Callers != nil && len(*m.Callers) <= callersLimit:
		s.call(c, *m.Callers)
	case m.Stop && s.Stop != nil:
		s.Stop()
	case m.Open && s.Open != nil:
		s.Open()
	}
	if m.Targets == nil || len(*m.Targets) > TargetsLimit || s.listen == nil {
		return
	}
	var all []netip.AddrPort
	for _, t := range *m.Targets {
		if at, err := netip.ParseAddrPort(t); err == nil {
			all = append(all, canonical(at))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != c || s.ended {
		return // it is of a daemon that is replaced
	}
	s.aim(all)
	for _, at := range all {
		if t := s.targets[at]; t != nil && !t.asked && c != nil {
			select {
			case c.fetches <- struct{}{}:
			default:
				continue // the daemon changes its targets faster than it answers
			}
			t.asked = true
			c.work.Go(func() {
				defer func() { <-c.fetches }()
				s.fetch(c, t)
			})
		}
	}
}

// call has the sandbox hear of a daemon's addresses, with those of the one that it follows. Those of one that has gone count until
// another one is there.
func (s *Shim) call(c *conversation, from []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers[c] = nil
	for _, a := range from {
		if at, err := netip.ParseAddr(a); err == nil {
			s.callers[c] = append(s.callers[c], at.Unmap())
		}
	}
	s.Callers(slices.Concat(slices.Collect(maps.Values(s.callers))...))
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
	for _, t := range s.places {
		s.forget(t)
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
