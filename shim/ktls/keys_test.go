package ktls

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t *testing.T, words string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(words, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTraceKeys compares with the trace of RFC 8448, section 3.
func TestTraceKeys(t *testing.T) {
	for name, c := range map[string]struct{ secret, key, nonce string }{
		"client": {
			"9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
			"17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9",
		},
		"server": {
			"a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
			"9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984",
		},
		"server's handshake": {
			"b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38",
			"3fce516009c21727d0f2e4e86ee403bc", "5d313eb2671276ee13000b30",
		},
	} {
		key, nonce, err := suites[tls.TLS_AES_128_GCM_SHA256].keys(unhex(t, c.secret))
		if err != nil || !bytes.Equal(key, unhex(t, c.key)) || !bytes.Equal(nonce, unhex(t, c.nonce)) {
			t.Errorf("%s: %x %x %v", name, key, nonce, err)
		}
	}
}

// TestLayouts compares with struct tls12_crypto_info_* on a machine with the least byte first.
func TestLayouts(t *testing.T) {
	secret := map[int][]byte{32: bytes.Repeat([]byte{1}, 32), 48: bytes.Repeat([]byte{1}, 48)}
	for id, want := range map[uint16]struct {
		head   string
		length int
	}{
		tls.TLS_AES_128_GCM_SHA256:       {"0403 3300", 2 + 2 + 8 + 16 + 4 + 8},
		tls.TLS_AES_256_GCM_SHA384:       {"0403 3400", 2 + 2 + 8 + 32 + 4 + 8},
		tls.TLS_CHACHA20_POLY1305_SHA256: {"0403 3600", 2 + 2 + 12 + 32 + 8},
	} {
		s := suites[id]
		key, nonce, err := s.keys(secret[s.hash().Size()])
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.info(secret[s.hash().Size()], 0x102)
		if err != nil {
			t.Fatal(err)
		}
		records := unhex(t, "0000000000000102")
		all := bytes.Join([][]byte{unhex(t, want.head), nonce[s.salt:], key, nonce[:s.salt], records}, nil)
		if !bytes.Equal(got, all) || len(got) != want.length {
			t.Errorf("%s: %x, want %x", tls.CipherSuiteName(id), got, all)
		}
	}
}
