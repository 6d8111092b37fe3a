package sandboxes

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Spec is what is needed to make one container.
type Spec struct {
	ID       string
	Function string
	Image    string
	Command  []string // replaces the image's entrypoint
	Args     []string // replaces the image's arguments
	Env      map[string]string

	CPULimitMillis int64 // thousandths of a core; 0: none
	MemoryLimit    int64 // bytes; 0: none

	// Annotations are the container's own, by which the shim knows a job.
	Annotations map[string]string
}

// Containers makes the containers of the sandboxes that the node itself runs.
type Containers interface {
	// Create makes a container with its own network, and everything in it but the
	// running program. On error nothing is left of it.
	Create(ctx context.Context, s Spec) (Container, error)
	// List returns the containers of this node whose program was started, so that a restarted
	// daemon can take them over, also those whose program has ended since; and removes what is half-made.
	List(ctx context.Context) ([]Container, error)
}

// Exit is how a program ended.
type Exit struct {
	Code uint32 // as a shell gives it
	// OutOfMemory: the kernel killed one of its processes for the container's limit of memory.
	OutOfMemory bool
}

// String is what the program did, for the function's owner.
func (e Exit) String() string {
	if e.OutOfMemory {
		return fmt.Sprintf("was killed (code %d): it needed more than its limit of memory", e.Code)
	}
	return fmt.Sprintf("ended with code %d", e.Code)
}

// Container is one function's program in its own namespaces.
type Container interface {
	ID() string
	Function() string
	// Address is the container's own IP address.
	Address() netip.Addr
	// Start runs the program.
	Start(ctx context.Context) error
	// Exited is closed after the program has ended.
	Exited() <-chan struct{}
	// Exit is valid once Exited is closed.
	Exit() Exit
	// Remove ends the program (a signal, grace later a kill) and leaves nothing but its log.
	Remove(ctx context.Context, grace time.Duration) error
	// Output is the end of what the function has logged since the container was made. It is
	// complete once the container is removed.
	Output() string
}
