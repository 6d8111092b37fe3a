package linkemu

import "time"

// packet is one packet on its way.
type packet struct {
	due   time.Duration
	frame []byte // with its vnet header
	bytes int    // on the wire
}

// queue holds the packets on their way, in the order they are due.
type queue struct {
	packets []packet
	head    int
}

func (q *queue) push(p packet) {
	// Move instead of growing when at least half of the slice has been taken out:
	// each packet moves at most once on average.
	if q.head > len(q.packets)/2 && len(q.packets) == cap(q.packets) {
		n := copy(q.packets, q.packets[q.head:])
		clear(q.packets[n:])
		q.packets, q.head = q.packets[:n], 0
	}
	q.packets = append(q.packets, p)
}

// first returns the packet that is due next, which stays in the queue.
func (q *queue) first() (packet, bool) {
	if q.head == len(q.packets) {
		return packet{}, false
	}
	return q.packets[q.head], true
}

// drop removes the first packet.
func (q *queue) drop() {
	q.packets[q.head] = packet{}
	q.head++
	if q.head == len(q.packets) {
		q.packets, q.head = q.packets[:0], 0
	}
}

const (
	// maxFrame is the largest that a TUN device hands out: an IP packet of 64 KiB.
	maxFrame = vnetHeaderSize + 1<<16
	// smallFrame holds any packet of the usual MTU of 1500 bytes. Acknowledgements would
	// otherwise take 64 KiB each, tens of thousands of them at a time.
	smallFrame = 2048
)

// buffers keeps used buffers of both sizes for the next packets, as many as were ever in
// use at once, so that a busy link makes no garbage. One goroutine owns it.
type buffers struct{ small, large [][]byte }

// get returns a buffer of at least n bytes' capacity, with length n.
func (b *buffers) get(n int) []byte {
	list, size := &b.large, maxFrame
	if n <= smallFrame {
		list, size = &b.small, smallFrame
	}
	last := len(*list) - 1
	if last < 0 {
		return make([]byte, n, size)
	}
	buffer := (*list)[last]
	*list = (*list)[:last]
	return buffer[:n]
}

func (b *buffers) put(buffer []byte) {
	if cap(buffer) == maxFrame {
		b.large = append(b.large, buffer)
		return
	}
	b.small = append(b.small, buffer)
}
