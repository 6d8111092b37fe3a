// Package linkemu emulates a link between two network namespaces of one machine, with
// delay, jitter and a rate in each direction, where the kernel has no netem.
//
// A TUN device in each namespace is one end of the link; one goroutine per direction reads
// packets at one end and writes them at the other when their time has come. It needs
// CAP_NET_ADMIN in both namespaces, and CAP_SYS_ADMIN to enter them.
package linkemu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// End is one end of the link.
type End struct {
	// Namespace is the path of a network namespace, for example /run/netns/edge.
	Namespace string
	// Device is the name of the TUN device to make there.
	Device string
	// Address is the device's address with its prefix length: 10.8.0.1/24.
	Address string
}

// Config describes a link. Delay, jitter, rate and queue hold for each direction by itself.
type Config struct {
	A, B End
	// Delay is the time one way, half of the round trip.
	Delay time.Duration
	// Jitter spreads the delay uniformly over Delay-Jitter to Delay+Jitter. Packets
	// never overtake each other.
	Jitter time.Duration
	// Wander, if not 0, has the delay drift instead: normally distributed around Delay
	// with Jitter as its standard deviation, a new one each Wander and no steps between.
	// Packets close to each other then take about as long, as on a path whose queues fill
	// and drain. Where each has a delay of its own and none overtakes another, the slowest
	// delays all behind it, and a busy link has a longer delay instead of jitter.
	Wander time.Duration
	// Rate is in bit/s of IP packets as they would be on the wire; 0: as fast as the
	// machine can.
	Rate int64
	// Seed makes the jitter repeatable.
	Seed uint64
	// QueueLimit is how many bytes may wait for their turn on the line, or, without a
	// rate, be on their way. What does not fit is dropped, newest first. 0: a default
	// that TCP fills the line with, see queueLimit.
	QueueLimit int
}

const (
	// minQueue lets a sender's burst of a few super-packets (64 KiB each) pass where the
	// bandwidth-delay product is next to nothing.
	minQueue = 256 << 10
	// maxInFlight bounds the memory of a direction without a rate: 10 Gbit/s at 50 ms.
	maxInFlight = 64 << 20
)

// queueLimit is the configured limit or the default. The default is the rule of thumb
// for routers, one bandwidth-delay product of the round trip (Villamizar and Song 1994):
// a single TCP flow that halves its window at a loss still finds the queue non-empty.
// In terms of the one-way delay that is twice the product.
func (c Config) queueLimit() int {
	switch {
	case c.QueueLimit > 0:
		return c.QueueLimit
	case c.Rate == 0:
		return maxInFlight
	}
	product := 2 * c.Delay.Seconds() * float64(c.Rate) / 8
	return int(min(max(product, minQueue), math.MaxInt32))
}

func (c Config) validate() error {
	switch {
	case c.Delay < 0:
		return fmt.Errorf("delay %v is negative", c.Delay)
	case c.Jitter < 0 || c.Jitter > c.Delay:
		return fmt.Errorf("jitter %v is not between 0 and the delay %v", c.Jitter, c.Delay)
	case c.Wander < 0:
		return fmt.Errorf("wander %v is negative", c.Wander)
	case c.Rate < 0:
		return fmt.Errorf("rate %d bit/s is negative", c.Rate)
	case c.QueueLimit < 0:
		return fmt.Errorf("queue limit %d is negative", c.QueueLimit)
	}
	for _, end := range []End{c.A, c.B} {
		if end.Device == "" || len(end.Device) >= unix.IFNAMSIZ {
			return fmt.Errorf("device name %q does not have 1 to %d characters", end.Device, unix.IFNAMSIZ-1)
		}
		if _, err := netip.ParsePrefix(end.Address); err != nil {
			return fmt.Errorf("address of device %s: %w", end.Device, err)
		}
	}
	return nil
}

// Link is a link that carries packets until it is closed.
type Link struct {
	aToB, bToA *direction
	stop       *os.File // closing this end of a pipe stops both directions
	done       chan struct{}
	err        error // why it stopped, once done is closed
}

// Open makes both devices, brings them up, and starts to carry packets between them.
func Open(c Config) (*Link, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("link configuration: %w", err)
	}
	a, err := openDevice(c.A)
	if err != nil {
		return nil, fmt.Errorf("end A of the link: %w", err)
	}
	b, err := openDevice(c.B)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("end B of the link: %w", err), a.close())
	}
	stopped, stop, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the stop pipe: %w", err), a.close(), b.close())
	}

	l := &Link{stop: stop, done: make(chan struct{})}
	// Fd once: each call would ask the kernel for blocking mode.
	hangUp := int(stopped.Fd())
	l.aToB = newDirection(a, b, hangUp, newShaper(c, rand.NewPCG(c.Seed, 'A')))
	l.bToA = newDirection(b, a, hangUp, newShaper(c, rand.NewPCG(c.Seed, 'B')))
	go func() {
		defer close(l.done)
		l.err = errors.Join(l.carry(), a.close(), b.close(), stopped.Close())
	}()
	return l, nil
}

// carry runs both directions; when one fails the other ends too.
func (l *Link) carry() error {
	var both errgroup.Group
	for _, d := range []*direction{l.aToB, l.bToA} {
		both.Go(func() error {
			defer l.stop.Close() // a second close only says that it was the second
			return d.run()
		})
	}
	return both.Wait()
}

// Cut has all that comes from now on vanish, in both directions, and nobody told so, until
// Heal. What is on its way arrives.
func (l *Link) Cut() { l.cut(true) }

// Heal ends what Cut began.
func (l *Link) Heal() { l.cut(false) }

func (l *Link) cut(is bool) {
	l.aToB.cut.Store(is)
	l.bToA.cut.Store(is)
}

// Done is closed when the link carries no more packets: after Close, or because one of
// its devices has gone; Close then says why.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close stops the link and removes its devices. Packets on their way are lost. It
// returns what went wrong while the link was open; further calls return the same.
func (l *Link) Close() error {
	l.stop.Close() // a second close only says that it was the second
	<-l.done
	return l.err
}

// Stats says what the link has carried so far.
type Stats struct {
	AToB DirectionStats `json:"a_to_b"`
	BToA DirectionStats `json:"b_to_a"`
}

// DirectionStats counts in one direction. A super-packet of segmentation offload counts
// as one packet, but with the bytes of all the packets it would be on a wire.
type DirectionStats struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Dropped packets found the queue full, the link cut, or the other end down.
	Dropped uint64 `json:"dropped"`
	// WorstLateness is how long after its time a packet was written at most: the
	// emulation's own error.
	WorstLateness time.Duration `json:"worst_lateness_ns"`
}

// Stats may be called at any time, also after Close.
func (l *Link) Stats() Stats {
	return Stats{AToB: l.aToB.stats(), BToA: l.bToA.stats()}
}
