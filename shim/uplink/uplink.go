// Package uplink is the node's side of its streams with the control planes. There are several
// of those, or one; each has a stream of its own and hears all that the node has to say. What
// the node is to do and to know it takes from one of them at a time, the followed one.
package uplink

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// findEvery is how often it is looked which control planes there are, while all that are
	// known are connected: a new one is of use when another one goes, which nobody waits for.
	findEvery = 10 * time.Second
	// most is the number of control planes that a node has streams with: a name that resolves
	// to half of the network is no control plane's.
	most = 8
)

// Handler acts on what the followed control plane says. Its methods are called one after the
// other, in the order of the messages, and must not block. When another control plane is
// followed they are called with what that one has said so far.
type Handler interface {
	Functions(*nodeapi.Functions)
	Start(*nodeapi.StartInstance)
	Stop(*nodeapi.StopInstance)
	Withdraw(*nodeapi.WithdrawInstance)
	Expect(*nodeapi.Expect)
	Instances(*nodeapi.Instances)
	Triggers(*nodeapi.Triggers)
	Neighbours(*nodeapi.Neighbours)
	Site(*nodeapi.Site)
	Passes(*nodeapi.Passes)
	// Keys are those that capabilities are to be signed by; empty: none are to be asked for. It may be
	// called again with the same.
	Keys(*nodeapi.Keys)
	// Allow says how many unused connections the node may hold.
	Allow(*nodeapi.Allowances)
	// Confirm is to be answered by Confirmed.
	Confirm(*nodeapi.Confirm)
	// CacheCall is to be answered by answer, once or more, at any time.
	CacheCall(m *nodeapi.CacheCall, answer func(*nodeapi.CacheAnswer))
}

// Conn is a connection to a control plane, such as a *grpc.ClientConn.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Directory says which control planes there are.
type Directory interface {
	// Addresses returns them, those to be tried first in front.
	Addresses(ctx context.Context) ([]string, error)
	// Any is an address that leads to one of them, whichever; empty: there is none such. It is
	// used while none of Addresses can be reached: they may be those of a while ago.
	Any() string
	// Dial returns a connection, which need not be open yet.
	Dial(address string) (Conn, error)
}

// Uplink keeps the streams open, and the node's open activations across them.
type Uplink struct {
	directory Directory
	log       *slog.Logger
	register  func() *nodeapi.Register // with handler since Run
	handler   Handler
	broken    chan struct{} // holds a token when a stream has ended

	// handling is held while the handler is called, and before mu.
	handling sync.Mutex

	mu      sync.Mutex
	streams []*stream // in the order in which they were found
	// alone is how many times in a row none was connected when it was looked which there are.
	alone    int
	followed *stream // nil: none is connected
	term     context.Context
	endTerm  context.CancelFunc // ends term: another one is followed, or none
	claims   int                // how often a control plane has said that it is in charge
	open     map[string]*activation
	journal  journal
	load     map[string]int32
	seen     map[string]bool // functions that requests pass by the daemon to
	// lately are functions that had requests a moment ago, and count as if they had one: no request is too short to be told. True: it was.
	lately map[string]bool
	// loads counts the changes of load and seen. waking: they are told in a moment. busy are the functions that were told last.
	loads               int
	waking              bool
	busy                map[string]bool
	roundTrips, signals measured
	words               words
}

// words replace what was told before, on each connection; nil: there was nothing to say yet.
type words [kinds]*nodeapi.NodeMessage

// The kinds of words.
const (
	refusals = iota
	storeProblems
	destinationProblems
	unused
	keeps
	kinds
)

// measured is the newest of a kind.
type measured struct {
	message *nodeapi.NodeMessage
	told    bool // to some control plane
}

// New returns an uplink. What it is told before Run, the control planes hear then.
func New(d Directory, log *slog.Logger) *Uplink {
	u := &Uplink{directory: d, log: log, broken: make(chan struct{}, 1),
		open: map[string]*activation{}, load: map[string]int32{}, lately: map[string]bool{}, seen: map[string]bool{}}
	u.term, u.endTerm = context.WithCancel(context.Background())
	return u
}

// Run keeps a stream open to each control plane until ctx ends. register states what the node is
// and runs, again for each stream, and may be called for several at a time.
func (u *Uplink) Run(ctx context.Context, register func() *nodeapi.Register, handler Handler) {
	u.register, u.handler = register, handler
	var running sync.WaitGroup
	defer running.Wait()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	level := slog.LevelWarn
	for {
		again := findEvery
		switch err := u.find(ctx, &running); {
		case ctx.Err() != nil:
			return
		case err != nil:
			u.log.Log(ctx, level, "it is not known which control planes there are; those of before are used", "error", err)
			level = slog.LevelDebug // one warning until it is
			again = wait.NextBackOff()
		default:
			wait.Reset()
			level = slog.LevelWarn
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		case <-u.broken:
			// It may be there under another address by now, or another one in its place.
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(again, reconnectLongest)):
			}
		}
	}
}

// find begins streams with control planes that are new. Those that are not there any more are
// let go when their stream ends.
func (u *Uplink) find(ctx context.Context, running *sync.WaitGroup) error {
	addresses, err := u.directory.Addresses(ctx)
	if err == nil && len(addresses) == 0 {
		err = errors.New("there is none")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.alone++; slices.ContainsFunc(u.streams, func(s *stream) bool { return s.up }) {
		u.alone = 0
	}
	// Not at once: at the start, or when one has just ended, the others are on their way.
	if spare := u.directory.Any(); spare != "" && u.alone > 1 {
		err = errors.Join(err, u.begin(ctx, spare, true, running))
	}
	if err != nil {
		return err
	}
	addresses = addresses[:min(len(addresses), most)]
	for _, s := range u.streams {
		if s.gone = !s.spare && !slices.Contains(addresses, s.address); s.gone && !s.up {
			s.end()
		}
	}
	for _, address := range addresses {
		if err := u.begin(ctx, address, false, running); err != nil {
			return err
		}
	}
	return nil
}

// begin begins a stream with the control plane at an address, if there is none; the caller holds
// mu.
func (u *Uplink) begin(ctx context.Context, address string, spare bool, running *sync.WaitGroup) error {
	if slices.ContainsFunc(u.streams, func(s *stream) bool { return s.address == address && s.spare == spare && !s.gone }) {
		return nil
	}
	conn, err := u.directory.Dial(address)
	if err != nil {
		return err
	}
	s := u.newStream(ctx, address, conn)
	s.spare = spare
	u.streams = append(u.streams, s)
	running.Go(s.run)
	return nil
}

// Report tells of an instance's change. It never blocks.
func (u *Uplink) Report(s *nodeapi.InstanceStatus) {
	u.post(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Instance{Instance: s}})
}

// Event tells the operator something. It never blocks.
func (u *Uplink) Event(e *nodeapi.Event) {
	u.post(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: e}})
}

// Confirmed answers a Confirm. It never blocks.
func (u *Uplink) Confirmed(id int64) {
	u.post(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Confirmed{Confirmed: &nodeapi.Confirmed{Id: id}}})
}

// Hold adds delta to the number of requests that the node has in its hands for the
// function and tells the control planes, which stop no instance meanwhile: at once if the function had none.
func (u *Uplink) Hold(function string, delta int32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.load[function] += delta; u.load[function] <= 0 {
		delete(u.load, function)
		u.lately[function] = false
	}
	u.loads++
	switch busy := u.load[function] > 0; {
	case busy && !u.busy[function]: // it is not to be stopped now
		u.wake()
	case !u.waking:
		u.waking = true
		time.AfterFunc(loadPause, u.tellLoad)
	}
}

// loadPause is how long other changes of the load wait for further ones: the idle window is a second at least.
const loadPause = 100 * time.Millisecond

// tellLoad tells the changes that have waited.
func (u *Uplink) tellLoad() {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.lately, func(_ string, told bool) bool { return told })
	u.loads++
	u.wake()
	if u.waking = len(u.lately) > 0; u.waking { // there was no time to tell these yet
		time.AfterFunc(loadPause, u.tellLoad)
	}
}

// Seen tells whether gateways of this node have requests of the function that pass the
// daemon by. Such a function counts as one request more in the node's load, however many
// there are: the control planes only ask whether it is idle. The function has to be one
// that a control plane named: what a request says could be anything, and any number.
func (u *Uplink) Seen(function string, active bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[function] == active {
		return
	}
	if active {
		u.seen[function] = true
	} else {
		delete(u.seen, function)
	}
	u.loads++
	u.wake()
}

// RoundTrips tells what the node measured. It never blocks; what still waits to be told is
// out of date with it. One of a time without control plane is told when one is back.
func (u *Uplink) RoundTrips(m *nodeapi.RoundTrips) {
	u.measure(&u.roundTrips, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_RoundTrips{RoundTrips: m}})
}

// Signals tells of the requests that instances got, likewise.
func (u *Uplink) Signals(m *nodeapi.Signals) {
	u.measure(&u.signals, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Signals{Signals: m}})
}

// Refused tells what the node's gateways refuse, which replaces what was told before. It never
// blocks.
func (u *Uplink) Refused(m *nodeapi.GatewayRefusals) {
	u.replace(refusals, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_GatewayRefusals{GatewayRefusals: m}})
}

// StoreProblems tells which stores the node cannot use, likewise.
func (u *Uplink) StoreProblems(m *nodeapi.StoreProblems) {
	u.replace(storeProblems, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_StoreProblems{StoreProblems: m}})
}

// DestinationProblems tells which destinations the node cannot connect to, likewise.
func (u *Uplink) DestinationProblems(m *nodeapi.DestinationProblems) {
	u.replace(destinationProblems, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_DestinationProblems{DestinationProblems: m}})
}

// Unused tells how many unused connections the node has and wants, likewise.
func (u *Uplink) Unused(m *nodeapi.Unused) {
	u.replace(unused, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Unused{Unused: m}})
}

// Keeps tells what the node keeps, likewise.
func (u *Uplink) Keeps(m *nodeapi.Keeps) {
	u.replace(keeps, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Keeps{Keeps: m}})
}

func (u *Uplink) replace(kind int, m *nodeapi.NodeMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.words[kind] = m
	u.wake()
}

func (u *Uplink) measure(kind *measured, m *nodeapi.NodeMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*kind = measured{message: m}
	u.wake()
}

// Connected is how many control planes the node has a stream with.
func (u *Uplink) Connected() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, s := range u.streams {
		if s.up {
			n++
		}
	}
	return n
}

// wake has all streams look at what is new; the caller holds mu.
func (u *Uplink) wake() {
	for _, s := range u.streams {
		signal(s.news)
	}
}

// signal leaves a token: whoever takes it finds all that is new by then.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// loadMessage is the load as it is now; the caller holds mu.
func (u *Uplink) loadMessage() *nodeapi.NodeMessage {
	l := &nodeapi.Load{InFlight: make(map[string]int32, len(u.load)+len(u.seen))}
	for f, n := range u.load {
		l.InFlight[f] = n
	}
	for f := range u.seen {
		l.InFlight[f]++
	}
	for f := range u.lately {
		l.InFlight[f], u.lately[f] = max(1, l.InFlight[f]), true
	}
	u.busy = make(map[string]bool, len(l.InFlight))
	for f := range l.InFlight {
		u.busy[f] = true
	}
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: l}}
}

// sendable tells whether a message can be sent: gRPC ends the stream over one that
// cannot, and what comes from requests may be anything but UTF-8.
func sendable(m *nodeapi.NodeMessage) bool {
	_, err := proto.Marshal(m)
	return err == nil
}

func (u *Uplink) post(m *nodeapi.NodeMessage) {
	if !sendable(m) {
		u.log.Error("a message to the control planes is not UTF-8; it was dropped")
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.journal.add(m) {
		u.log.Warn("no control plane takes messages; one was dropped")
	}
	u.wake()
}
