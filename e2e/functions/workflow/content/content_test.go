package content_test

import (
	"bytes"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
)

func TestContentsAreTheirSizeAndSeed(t *testing.T) {
	const size = 100_000
	seen := map[string]bool{}
	for _, kind := range []string{content.Noise, content.Video} {
		for seed := range uint64(2) {
			b, err := content.Make(kind, size, seed)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > size || kind == content.Noise && len(b) != size {
				t.Errorf("%s has %d bytes", kind, len(b))
			}
			first, err1 := content.Digest(kind, size, seed)
			again, err2 := content.Digest(kind, size, seed)
			if err1 != nil || err2 != nil || first != again {
				t.Errorf("%s is %s once and %s again", kind, first, again)
			}
			if seen[first] {
				t.Errorf("%s of seed %d is another one's", kind, seed)
			}
			seen[first] = true
		}
	}
	if _, err := content.Make("music", 1, 1); err == nil {
		t.Error("there is music")
	}
}

func TestAVideoIsSplitIntoItsFrames(t *testing.T) {
	video, err := content.Make(content.Video, 1_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		parts := content.Split(video, n)
		if len(parts) != n {
			t.Fatalf("%d parts are %d", n, len(parts))
		}
		if n > 0 && !bytes.Equal(bytes.Join(parts, nil), video) {
			t.Errorf("%d parts are not the whole", n)
		}
		for _, p := range parts {
			if len(p) > 2*len(video)/n {
				t.Errorf("of %d parts one has %d bytes of %d", n, len(p), len(video))
			}
		}
	}
	if parts := content.Split([]byte("no video"), 3); len(parts) != 0 {
		t.Errorf("%q", parts)
	}
}
