package linkemu

import "encoding/binary"

// With IFF_VNET_HDR each packet comes with a struct virtio_net_hdr (virtio 1.2, section
// 5.1.6, legacy layout in the machine's byte order) in front. It goes to the other end as
// it came: checksums and segmentation stay undone, since no wire needs them.
const (
	vnetHeaderSize = 10

	gsoTypeOffset   = 1
	gsoSizeOffset   = 4
	csumStartOffset = 6

	gsoNone = 0

	// tcpDataOffset is where TCP says how long its header is, in the upper half of a
	// byte, in units of four bytes (RFC 9293).
	tcpDataOffset = 12
	minTCPHeader  = 20
)

// wireBytes is how many bytes of IP packets a frame would be on a wire. A super-packet
// stands for as many packets as its payload makes segments, each with headers of its own.
// A frame that contradicts itself counts as the bytes it has.
func wireBytes(frame []byte) int {
	if len(frame) <= vnetHeaderSize {
		return 0
	}
	header, packet := frame[:vnetHeaderSize], frame[vnetHeaderSize:]
	segment := int(binary.NativeEndian.Uint16(header[gsoSizeOffset:]))
	if header[gsoTypeOffset] == gsoNone || segment == 0 {
		return len(packet)
	}
	// The header's own hdr_len is only a hint (it may cover payload), but a super-packet
	// always leaves its checksum to be done, from where TCP's header starts.
	tcp := int(binary.NativeEndian.Uint16(header[csumStartOffset:]))
	if tcp+tcpDataOffset >= len(packet) {
		return len(packet)
	}
	headers := tcp + max(int(packet[tcp+tcpDataOffset]>>4)*4, minTCPHeader)
	payload := len(packet) - headers
	if payload <= 0 {
		return len(packet)
	}
	segments := (payload + segment - 1) / segment
	return payload + segments*headers
}
