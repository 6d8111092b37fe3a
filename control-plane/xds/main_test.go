package xds

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// video is a function with an input, thumbs one without.
func video() platform.Function {
	return platform.Function{
		Name: "default/video", Hosts: []string{"video.default.example.com", "video.default"}, RequestTimeout: 60 * time.Second,
		Policy: policy.Policy{Input: "s3://videos/{header.x-key}", ReadyTimeout: 30 * time.Second},
	}
}

func thumbs() platform.Function {
	return platform.Function{
		Name: "default/thumbs", Hosts: []string{"thumbs.default.example.com"}, RequestTimeout: 10 * time.Second,
		Policy: policy.Policy{ReadyTimeout: 20 * time.Second},
	}
}

func ready(f platform.Function, id, address string) platform.Instance {
	return platform.Instance{ID: id, Function: f.Name, Node: "edge", Phase: platform.Ready, Address: at(address)}
}

// at is zero for what is no address.
func at(address string) netip.AddrPort {
	a, _ := netip.ParseAddrPort(address)
	return a
}

// edge is a node.
var edge = struct{ ID string }{"edge"}
