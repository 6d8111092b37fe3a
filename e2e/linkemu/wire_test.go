package linkemu

import (
	"encoding/binary"
	"testing"
)

// superPacket is a frame of IPv4 and TCP with offload, as the kernel hands it out.
func superPacket(gsoType byte, segment, tcpStart, tcpHeader, payload int) []byte {
	frame := make([]byte, vnetHeaderSize+tcpStart+tcpHeader+payload)
	frame[gsoTypeOffset] = gsoType
	binary.NativeEndian.PutUint16(frame[gsoSizeOffset:], uint16(segment))
	binary.NativeEndian.PutUint16(frame[csumStartOffset:], uint16(tcpStart))
	frame[vnetHeaderSize+tcpStart+tcpDataOffset] = byte(tcpHeader/4) << 4
	return frame
}

const gsoTCPv4 = 1

func TestWireBytes(t *testing.T) {
	broken := superPacket(gsoTCPv4, 1448, 20, 32, 10_000)
	binary.NativeEndian.PutUint16(broken[csumStartOffset:], 60_000)
	for _, c := range []struct {
		name  string
		frame []byte
		want  int
	}{
		{"nothing", nil, 0},
		{"header alone", make([]byte, vnetHeaderSize), 0},
		{"plain packet", make([]byte, vnetHeaderSize+1500), 1500},
		{"one segment", superPacket(gsoTCPv4, 1448, 20, 32, 1448), 1500},
		{"ten segments", superPacket(gsoTCPv4, 1448, 20, 32, 14_480), 15_000},
		{"a last short one", superPacket(gsoTCPv4, 1448, 20, 32, 14_481), 15_053},
		{"IPv6 with plain TCP", superPacket(4, 1440, 40, 20, 2880), 3000},
		{"headers alone", superPacket(gsoTCPv4, 1448, 20, 32, 0), 52},
		{"no segment size", superPacket(gsoTCPv4, 0, 20, 32, 10_000), 10_052},
		{"TCP outside the packet", broken, 10_052},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := wireBytes(c.frame); got != c.want {
				t.Errorf("wireBytes = %d, want %d", got, c.want)
			}
		})
	}
}

func FuzzWireBytes(f *testing.F) {
	f.Add(superPacket(gsoTCPv4, 1448, 20, 32, 14_480))
	f.Add(make([]byte, vnetHeaderSize+64))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if got, least := wireBytes(frame), len(frame)-vnetHeaderSize; got < max(least, 0) {
			t.Errorf("%d bytes on the wire for a packet of %d", got, least)
		}
	})
}
