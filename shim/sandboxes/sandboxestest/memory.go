// Package sandboxestest holds what every sandboxes.Containers must do, as tests, and a
// runtime in memory that does it.
package sandboxestest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// Images of a Memory. Any other cannot be had.
const (
	// Image holds the programs that a Memory knows.
	Image = "memory.test/programs:1"
	// SlowImage is pulled for as long as one waits.
	SlowImage = "memory.test/slow:1"
)

// killed is the exit code of a program that was killed, as a shell gives it.
const killed = 128 + 9

// Memory is a node without processes and namespaces: a sandbox is an address of the
// loopback device, where its program listens without ever answering. It outlives the
// daemons that use it. Its programs are what Spec.Args says:
//
//	serve PORT [AFTER]  listens, after a duration if given; the signal to end ends it with 0
//	stubborn PORT       listens and ignores the signal to end
//	exit CODE [AFTER]   ends
//	fill 0              needs more memory than any limit
//	say CODE WORDS      writes the words to its log, and ends
//
// Any other cannot be started.
type Memory struct {
	mu        sync.Mutex
	sandboxes map[string]*sandbox
	last      netip.Addr
}

// NewMemory returns a node without sandboxes. Nodes at the same time need different
// networks, 1 to 255, since all have one loopback device.
func NewMemory(network byte) *Memory {
	return &Memory{sandboxes: map[string]*sandbox{}, last: netip.AddrFrom4([4]byte{127, network, 0, 0})}
}

// Create implements sandboxes.Containers.
func (m *Memory) Create(ctx context.Context, s sandboxes.Spec) (sandboxes.Container, error) {
	switch s.Image {
	case Image:
	case SlowImage:
		<-ctx.Done()
	default:
		return nil, problem.New(http.StatusBadGateway, "ImageUnavailable", "spec.template.spec.containers[0].image",
			"there is no such image")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("making a sandbox: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.sandboxes[s.ID]; ok {
		return nil, fmt.Errorf("sandbox %s exists", s.ID)
	}
	m.last = m.last.Next()
	sb := &sandbox{node: m, spec: s, address: m.last, exited: make(chan struct{})}
	m.sandboxes[s.ID] = sb
	return sb, nil
}

// List implements sandboxes.Containers.
func (m *Memory) List(context.Context) ([]sandboxes.Container, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []sandboxes.Container
	for id, sb := range m.sandboxes {
		if !sb.started {
			sb.exit(killed)
			delete(m.sandboxes, id)
			continue
		}
		all = append(all, sb)
	}
	return all, nil
}

// Sandboxes returns the ids of what there is, sorted.
func (m *Memory) Sandboxes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for id := range m.sandboxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Exit ends a sandbox's program as if by itself.
func (m *Memory) Exit(id string, code uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sandboxes[id].exit(code)
}

// sandbox implements sandboxes.Container. Its fields are guarded by the node's mu, but for
// those that stay as they are made.
type sandbox struct {
	node    *Memory
	spec    sandboxes.Spec
	address netip.Addr
	exited  chan struct{}

	started  bool
	running  bool
	how      sandboxes.Exit
	output   string
	listener net.Listener
	later    *time.Timer
}

func (sb *sandbox) ID() string              { return sb.spec.ID }
func (sb *sandbox) Function() string        { return sb.spec.Function }
func (sb *sandbox) Address() netip.Addr     { return sb.address }
func (sb *sandbox) Exited() <-chan struct{} { return sb.exited }

// Output implements sandboxes.Container.
func (sb *sandbox) Output() string {
	sb.node.mu.Lock()
	defer sb.node.mu.Unlock()
	return sb.output
}

func (sb *sandbox) Exit() sandboxes.Exit {
	sb.node.mu.Lock()
	defer sb.node.mu.Unlock()
	return sb.how
}

// Start implements sandboxes.Container.
func (sb *sandbox) Start(ctx context.Context) error {
	sb.node.mu.Lock()
	defer sb.node.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting a program: %w", err)
	}
	args := append(slices.Clone(sb.spec.Args), "", "", "")[:3]
	number, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil {
		return fmt.Errorf("%q is not a program", sb.spec.Args)
	}
	act := func() { sb.listen(uint16(number)) }
	switch args[0] {
	case "serve", "stubborn", "say":
	case "exit":
		act = func() { sb.exit(uint32(number)) }
	case "fill":
		act = func() { sb.how.OutOfMemory = true; sb.exit(killed) }
	default:
		return fmt.Errorf("%q is not a program", sb.spec.Args)
	}
	sb.started, sb.running = true, true
	if args[2] == "" {
		act()
		return nil
	}
	if args[0] == "say" {
		sb.output = args[2]
		sb.exit(uint32(number))
		return nil
	}
	after, err := time.ParseDuration(args[2])
	sb.later = time.AfterFunc(after, func() {
		sb.node.mu.Lock()
		defer sb.node.mu.Unlock()
		if sb.running {
			act()
		}
	})
	return err
}

func (sb *sandbox) listen(port uint16) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(sb.address, port).String())
	if err != nil { // as a program would whose port is taken
		sb.exit(1)
		return
	}
	sb.listener = l
}

// exit ends the program once; the caller holds mu.
func (sb *sandbox) exit(code uint32) {
	select {
	case <-sb.exited:
		return
	default:
	}
	if sb.listener != nil {
		_ = sb.listener.Close()
	}
	if sb.later != nil {
		sb.later.Stop()
	}
	sb.running, sb.how.Code = false, code
	close(sb.exited)
}

// Remove implements sandboxes.Container.
func (sb *sandbox) Remove(ctx context.Context, grace time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("removing a sandbox: %w", err)
	}
	sb.node.mu.Lock()
	stubborn := sb.running && sb.spec.Args[0] == "stubborn"
	if grace > 0 && sb.running && !stubborn {
		sb.exit(0)
	}
	sb.node.mu.Unlock()
	if grace > 0 && stubborn {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-sb.exited:
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("removing a sandbox: %w", ctx.Err())
		}
	}
	sb.node.mu.Lock()
	defer sb.node.mu.Unlock()
	sb.exit(killed)
	if sb.node.sandboxes[sb.spec.ID] == sb {
		delete(sb.node.sandboxes, sb.spec.ID)
	}
	return nil
}
