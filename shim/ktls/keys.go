package ktls

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"
)

const (
	// nonceLength is that of all suites of TLS 1.3, in bytes (RFC 8446, section 5.3).
	nonceLength = 12
	// infoMost is the longest description of keys that the kernel takes, in bytes: AES-256's.
	infoMost = 56
)

// suite is a cipher suite as the kernel knows it: <linux/tls.h>.
type suite struct {
	hash      func() hash.Hash
	cipher    uint16
	keyLength int
	// salt is how many of the nonce's first bytes the kernel takes apart from the others, as TLS 1.2 has them.
	salt int
}

// suites are those of TLS 1.3 that crypto/tls speaks. None of TLS 1.2 is among them.
var suites = map[uint16]suite{
	tls.TLS_AES_128_GCM_SHA256:       {hash: sha256.New, cipher: 51, keyLength: 16, salt: 4},
	tls.TLS_AES_256_GCM_SHA384:       {hash: sha512.New384, cipher: 52, keyLength: 32, salt: 4},
	tls.TLS_CHACHA20_POLY1305_SHA256: {hash: sha256.New, cipher: 54, keyLength: 32},
}

// keys are a direction's key and nonce (RFC 8446, section 7.3).
func (s suite) keys(secret []byte) (key, nonce []byte, err error) {
	if key, err = s.expand(secret, "key", s.keyLength); err != nil {
		return nil, nil, err
	}
	if nonce, err = s.expand(secret, "iv", nonceLength); err != nil {
		return nil, nil, err
	}
	return key, nonce, nil
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func (s suite) expand(secret []byte, label string, length int) ([]byte, error) {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(append(append(info, byte(len(label))), label...), 0)
	out, err := hkdf.Expand(s.hash, secret, string(info), length)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return out, nil
}

// info describes a direction to the kernel, struct tls12_crypto_info_*. records is how many its keys have been used
// for. The caller clears it.
func (s suite) info(secret []byte, records uint64) ([]byte, error) {
	key, nonce, err := s.keys(secret)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	defer clear(nonce)
	b := make([]byte, 0, infoMost)
	b = binary.NativeEndian.AppendUint16(b, tls.VersionTLS13)
	b = binary.NativeEndian.AppendUint16(b, s.cipher)
	b = append(append(append(b, nonce[s.salt:]...), key...), nonce[:s.salt]...)
	return binary.BigEndian.AppendUint64(b, records), nil
}
