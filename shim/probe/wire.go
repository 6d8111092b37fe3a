package probe

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

// Protocol is what connections for probes agree on in their TLS handshake (ALPN, RFC 7301),
// on the port where daemons hand requests over. There a question is one byte, and the answer
// a nodeapi.Coordinate behind its length in two.
const Protocol = "headstart-probe/1"

const (
	protocolHTTP = "http/1.1"
	question     = 1
	// answerMost bounds an answer, in bytes: a coordinate has about a hundred.
	answerMost = 1 << 10
	// patience bounds an exchange, its connection's making included: three round trips.
	patience = 10 * time.Second
)

// Offer is conf for a server that takes probes besides HTTP, and further protocols.
func Offer(conf *tls.Config, further ...string) *tls.Config {
	offer := conf.Clone()
	offer.NextProtos = append([]string{protocolHTTP, Protocol}, further...)
	if choose := conf.GetConfigForClient; choose != nil {
		offer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil || chosen == nil {
				return chosen, err
			}
			return Offer(chosen, further...), nil
		}
	}
	return offer
}

func writeAnswer(w io.Writer, p coordinate.Point) error {
	body, err := proto.Marshal(p.Message())
	if err != nil {
		return fmt.Errorf("answering a probe: %w", err)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	return err
}

func readAnswer(r io.Reader) (coordinate.Point, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return coordinate.Point{}, err
	}
	n := binary.BigEndian.Uint16(length[:])
	if n > answerMost {
		return coordinate.Point{}, fmt.Errorf("an answer of %d bytes", n)
	}
	body := slices.Grow([]byte(nil), int(n))[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		return coordinate.Point{}, err
	}
	var said nodeapi.Coordinate
	if err := proto.Unmarshal(body, &said); err != nil {
		return coordinate.Point{}, fmt.Errorf("reading an answer: %w", err)
	}
	return coordinate.Parse(&said)
}
