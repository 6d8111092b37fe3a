package linkemu

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// direction carries packets from one device to the other. One goroutine runs it and owns
// all but the counters.
type direction struct {
	in, out *device
	stopped int // a descriptor that polls as hung up when the link is to stop
	start   time.Time
	shaper  shaper
	queue   queue
	buffers buffers
	// moderation is how long a busy direction sleeps, as network cards hold back
	// interrupts: waking up for each packet costs more than carrying it.
	moderation time.Duration
	// cut: what comes is lost.
	cut atomic.Bool

	packets, bytes, dropped atomic.Uint64
	worstLateness           atomic.Int64
}

// Moderation is a hundredth of the delay, so that it disappears in what it distorts, and
// at most as long as cards commonly have it.
const (
	moderationShare = 100
	maxModeration   = 250 * time.Microsecond
)

func newDirection(in, out *device, stopped int, s shaper) *direction {
	return &direction{
		in: in, out: out,
		stopped:    stopped,
		start:      time.Now(),
		shaper:     s,
		moderation: min(s.delay/moderationShare, maxModeration),
	}
}

func (d *direction) stats() DirectionStats {
	return DirectionStats{
		Packets:       d.packets.Load(),
		Bytes:         d.bytes.Load(),
		Dropped:       d.dropped.Load(),
		WorstLateness: time.Duration(d.worstLateness.Load()),
	}
}

// run carries packets until the link stops (nil) or a device fails.
func (d *direction) run() error {
	for {
		// The runtime's monitor thread takes the processor away from a goroutine that it has
		// not seen scheduled for 10 ms, wakes every 20 us to look for more such, and so
		// costs as much as the forwarding itself.
		runtime.Gosched()
		delivered, err := d.deliver()
		if err != nil {
			return err
		}
		accepted, err := d.accept()
		if err != nil {
			return err
		}
		if stopped, err := d.wait(delivered || accepted); err != nil || stopped {
			return err
		}
	}
}

// deliver writes all packets that are due.
func (d *direction) deliver() (any bool, err error) {
	for {
		p, ok := d.queue.first()
		if !ok {
			return any, nil
		}
		late := d.now() - p.due
		if late < 0 {
			return any, nil
		}
		any = true
		d.queue.drop()
		d.shaper.arrived(p.bytes)
		_, err := unix.Write(d.out.fd, p.frame)
		d.buffers.put(p.frame)
		switch {
		case err == nil:
			d.packets.Add(1)
			d.bytes.Add(uint64(p.bytes))
			d.worstLateness.Store(max(d.worstLateness.Load(), int64(late)))
		case errors.Is(err, unix.EBADFD):
			return any, fmt.Errorf("writing to device %s: %w", d.out.name, err)
		default:
			// A device that is down, or a packet it does not like: lost, as on any link.
			d.dropped.Add(1)
		}
	}
}

// readBurst is how many packets are read before those that are due are looked at again:
// a super-packet takes about 10 us, so this delays none by more than 0.2 ms.
const readBurst = 16

// accept reads packets into the queue.
func (d *direction) accept() (any bool, err error) {
	for range readBurst {
		frame, err := d.read()
		if frame == nil || err != nil {
			return any, err
		}
		any = true
		bytes := wireBytes(frame)
		due, ok := time.Duration(0), !d.cut.Load()
		if ok {
			due, ok = d.shaper.admit(d.now(), bytes)
		}
		if !ok {
			d.dropped.Add(1)
			d.buffers.put(frame)
			continue
		}
		d.queue.push(packet{due: due, frame: frame, bytes: bytes})
	}
	return any, nil
}

// read returns the next packet's frame; nil: there is none.
func (d *direction) read() ([]byte, error) {
	frame := d.buffers.get(maxFrame)
	n, err := unix.Read(d.in.fd, frame)
	if err != nil {
		d.buffers.put(frame)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading from device %s: %w", d.in.name, err)
	}
	if n > smallFrame {
		return frame[:n], nil
	}
	small := d.buffers.get(n)
	copy(small, frame)
	d.buffers.put(frame)
	return small, nil
}

// wait sleeps until a packet can be read or the next one is due, or, when the direction
// is busy, for its moderation time. It also ends when the link stops.
func (d *direction) wait(busy bool) (stopped bool, err error) {
	fds := []unix.PollFd{{Fd: int32(d.stopped)}, {Fd: int32(d.in.fd), Events: unix.POLLIN}}
	var timeout *unix.Timespec // none: for as long as it takes
	if busy && d.moderation > 0 {
		t := unix.NsecToTimespec(int64(d.moderation))
		fds, timeout = fds[:1], &t
	} else if p, ok := d.queue.first(); ok {
		t := unix.NsecToTimespec(int64(max(p.due-d.now(), 0)))
		timeout = &t
	}
	if _, err := unix.Ppoll(fds, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("polling device %s: %w", d.in.name, err)
	}
	return fds[0].Revents != 0, nil
}

// now counts from when the direction was made, on the clock that also times ppoll.
func (d *direction) now() time.Duration { return time.Since(d.start) }
