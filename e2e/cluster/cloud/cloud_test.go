//go:build cluster

package cloud_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/cloud"
)

// The S3 server answers from across the link, and later than a round trip.
func TestTheStoreIsAcrossTheLink(t *testing.T) {
	const delay = 10 * time.Millisecond
	c, err := cloud.Open(t.Context(), cloud.Config{BinDir: os.Getenv("HEADSTART_BIN"), WorkDir: t.TempDir(), Delay: delay, Rate: 250_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := c.S3.Put(t.Context(), "a", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resp, err := http.Get(c.S3.Endpoint + "/videos/a")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	// Connecting and asking take a round trip each.
	if took := time.Since(began); took < 4*delay {
		t.Errorf("an answer came after %v", took)
	}
}
