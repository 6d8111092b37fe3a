package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// The distances. The paper's servers were at 0.7 ms, in the same cloud; and it delayed the connection by 10 and 50 ms.
var (
	loopback = testbed.Distance{Name: "loopback"}
	lan      = testbed.Distance{Name: "lan", RTT: 700 * time.Microsecond}
	near     = testbed.Distance{Name: "10ms", RTT: 10 * time.Millisecond}
	far      = testbed.Distance{Name: "50ms", RTT: 50 * time.Millisecond}
)

const (
	// image has the program that connects.
	image = "headstart.local/client:1"
	// sessionsMost is for the part memory.
	sessionsMost = "max_connections = 1000"
)

// bench is what the parts share.
type bench struct {
	result.Options
	farm *testbed.Farm
}

func open(ctx context.Context, o result.Options) (*bench, func() error, error) {
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("network namespaces and containers need root")
	}
	work := filepath.Join(o.Out, "connections")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, nil, err
	}
	farm, err := testbed.OpenFarm(ctx, testbed.FarmConfig{
		Config: testbed.Config{Name: "hsconn", BinDir: o.Bin, WorkDir: work,
			Subnet:   netip.MustParsePrefix("10.249.0.0/16"),
			Progress: result.Progress},
		Distances: []testbed.Distance{loopback, lan, near, far},
		// The log tells when a session is there, and the server's own cost of a query is as small as can be.
		Settings: []string{sessionsMost, "log_connections = on", "log_line_prefix = '%m [%p] '",
			"log_timezone = 'UTC'"},
	})
	if err != nil {
		return nil, nil, err
	}
	b := &bench{Options: o, farm: farm}
	end := func() error {
		result.Progress("removing everything")
		return farm.Close()
	}
	var archive bytes.Buffer
	err = ociimage.Build(&archive, ociimage.Image{Ref: image, Entrypoint: []string{"/client"},
		Files: map[string]ociimage.File{
			"/client":    {Source: filepath.Join(o.Bin, "client"), Mode: 0o755},
			"/roots.pem": {Content: farm.Authority.PEM, Mode: 0o644}}})
	if err == nil {
		err = farm.Import(ctx, archive.Bytes())
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return b, end, nil
}

// at returns the servers at a distance.
func (b *bench) at(d testbed.Distance) *testbed.Servers {
	for _, s := range b.farm.Servers {
		if s.Distance == d {
			return s
		}
	}
	panic("no servers at " + d.Name) // the distances are this file's
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
