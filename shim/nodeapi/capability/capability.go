// Package capability is how a node's daemon knows what was bound to its node. The control plane
// signs each binding of a request to an instance on another node. The request's node hands the
// signature over with the request, and the instance's node delivers nothing that it does not fit.
//
// The signature travels without what it says: who verifies it takes that from the request that it
// is about to deliver. So there is nothing to parse, and nothing that could be said twice.
package capability

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

const (
	// Life is how long after its signature a capability is used: the dial of another node may
	// take 10 s.
	Life = 30 * time.Second
	// Skew is how far the clocks of control plane and node may differ. It bounds, with Life, for how
	// long a node remembers what was used.
	Skew = 2 * time.Minute
)

// Binding is what a capability is for. Headers are those of the request between the two daemons.
type Binding struct {
	// Request is its id, Function namespace/name.
	Request, Function, Instance string
	// Input and Inputs are the references, as in filterapi.HeaderInput and HeaderInputs.
	Input, Inputs string
	// Source is the node that hands the request over, Target the instance's, by their certificates.
	Source, Target string
	// Caller is namespace/name of the function that makes the request; empty: another client.
	Caller string
}

// Errors of Verify, for an operator to read. They are as much as may be said: a signature tells not
// which part it does not fit.
var (
	ErrMissing = errors.New("it comes without a capability")
	ErrForeign = errors.New("its capability is not the control plane's for this request, from that node to this one")
	ErrTime    = errors.New("its capability has expired, or the clocks of control plane and node differ by more than 2 minutes")
	ErrUsed    = errors.New("its capability has been used")
	ErrFull    = errors.New("the node remembers as many used capabilities as it can")
)

// encoding of a token: the expiry in milliseconds, and the signature.
var encoding = base64.RawURLEncoding.Strict()

const (
	expiryBytes = 8
	tokenBytes  = expiryBytes + ed25519.SignatureSize
)

// Claim is what a token is for: a Binding or a Pass.
type Claim interface {
	// text is what is signed.
	text(expiry []byte) []byte
}

// Sign returns the token of a claim, which a header can hold.
func Sign(key ed25519.PrivateKey, c Claim, expires time.Time) string {
	token := binary.BigEndian.AppendUint64(nil, uint64(expires.UnixMilli()))
	return encoding.EncodeToString(append(token, ed25519.Sign(key, c.text(token))...))
}

// Verify returns when the token of a claim expires, and the signature, which no other has.
func Verify(keys []ed25519.PublicKey, c Claim, token string) (expires time.Time, signature []byte, err error) {
	if token == "" {
		return expires, nil, ErrMissing
	}
	raw, err := encoding.DecodeString(token)
	if err != nil || len(token) != encoding.EncodedLen(tokenBytes) || len(raw) != tokenBytes {
		return expires, nil, ErrForeign
	}
	at, signature := raw[:expiryBytes], raw[expiryBytes:]
	text := c.text(at)
	if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool {
		return len(k) == ed25519.PublicKeySize && ed25519.Verify(k, text, signature)
	}) {
		return expires, nil, ErrForeign
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(at))), signature, nil
}

// text has each field behind its length, so that no two bindings have the same, and a Pass has none of them.
func (b Binding) text(expiry []byte) []byte {
	return textOf("headstart capability 1\n", expiry,
		b.Request, b.Function, b.Instance, b.Input, b.Inputs, b.Source, b.Target, b.Caller)
}

func textOf(kind string, expiry []byte, fields ...string) []byte {
	text := append([]byte(kind), expiry...)
	for _, field := range fields {
		text = binary.BigEndian.AppendUint32(text, uint32(len(field)))
		text = append(text, field...)
	}
	return text
}
