package digest_test

import (
	"crypto/md5"
	"encoding/base64"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// Checksums of "123456789", as catalogues of checksums have them.
var checksums = map[string]string{
	"crc32":     base64.StdEncoding.EncodeToString([]byte{0xcb, 0xf4, 0x39, 0x26}),
	"crc32c":    base64.StdEncoding.EncodeToString([]byte{0xe3, 0x06, 0x92, 0x83}),
	"crc64nvme": base64.StdEncoding.EncodeToString([]byte{0xae, 0x8b, 0x14, 0x86, 0x0a, 0x79, 0x98, 0x88}),
	"sha256":    "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
}

func TestChecksumsOfStores(t *testing.T) {
	for name, value := range checksums {
		c, ok := digest.FromStore(map[string]string{name: value}, "FULL_OBJECT")
		if !ok || c.Algorithm() != name {
			t.Errorf("%s is not taken", name)
			continue
		}
		for text, want := range map[string]bool{"123456789": true, "123456780": false, "": false} {
			h := c.New()
			_, _ = h.Write([]byte(text))
			if got := c.Agrees(h); got != want {
				t.Errorf("%s of %q agrees: %v", name, text, got)
			}
		}
	}
	if c, _ := digest.FromStore(checksums, ""); c.Algorithm() != "crc64nvme" {
		t.Errorf("of all %s is computed", c.Algorithm())
	}
}

func TestChecksumsThatAreNotOfTheContentAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		checksums map[string]string
		kind      string
	}{
		"of parts, by the kind": {checksums, "COMPOSITE"},
		"of parts, by its form": {map[string]string{"sha256": checksums["sha256"] + "-3"}, ""},
		"unknown":               {map[string]string{"sha1": "98O8HYCOBHMqCVXTZ0ONg5z5CSQ="}, ""},
		"no base64":             {map[string]string{"crc32": "!!!!"}, ""},
		"of another length":     {map[string]string{"crc32": "AAAA"}, ""},
		"empty":                 {map[string]string{"crc32": ""}, ""},
		"none":                  {nil, ""},
	} {
		if got, ok := digest.FromStore(c.checksums, c.kind); ok || got.New() != nil {
			t.Errorf("%s: %s is taken", name, got.Algorithm())
		}
	}
}

// BenchmarkChecksums has what a store's checksum costs beside BLAKE3, and MD5, which is left out.
func BenchmarkChecksums(b *testing.B) {
	block := content(digest.Block)
	for name, value := range checksums {
		b.Run(name, func(b *testing.B) {
			c, _ := digest.FromStore(map[string]string{name: value}, "")
			h := c.New()
			b.SetBytes(digest.Block)
			for b.Loop() {
				_, _ = h.Write(block)
			}
		})
	}
	b.Run("md5", func(b *testing.B) {
		h := md5.New()
		b.SetBytes(digest.Block)
		for b.Loop() {
			_, _ = h.Write(block)
		}
	})
}
