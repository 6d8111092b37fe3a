//go:build integration

package testbed_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

func TestFarm(t *testing.T) {
	const rtt = 4 * time.Millisecond
	f, err := testbed.OpenFarm(t.Context(), testbed.FarmConfig{
		Config: testbed.Config{Name: "hsfarm", BinDir: programtest.Path(t, "."), WorkDir: t.TempDir(),
			Subnet: netip.MustParsePrefix("10.247.0.0/16"), Progress: func(step string) { t.Log(step) }},
		Distances: []testbed.Distance{{Name: "loopback"}, {Name: "near", RTT: rtt}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range f.Servers {
		took := roundTrip(t, f.Node(testbed.Edge).Namespace, fmt.Sprintf("%s:%d", s.Address, testbed.EchoPort))
		if took < s.RTT || s.RTT == 0 && took > rtt {
			t.Errorf("a round trip to %s takes %s", s.Name, took)
		}
		conn, err := net.Dial("unix", filepath.Join(s.PgBouncer.Dir, ".s.PGSQL.6432"))
		if err != nil {
			t.Error(err)
			continue
		}
		conn.Close()
	}
}

// roundTrip is the shortest of some.
func roundTrip(t *testing.T, namespace, address string) (shortest time.Duration) {
	t.Helper()
	var c net.Conn
	err := nsthread.Run(namespace, func() (err error) {
		c, err = net.Dial("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	for range 10 {
		began := time.Now()
		fmt.Fprintln(c, "hello")
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); shortest == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest
}
