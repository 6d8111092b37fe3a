// Command coredns is CoreDNS with the plugins that a test cluster needs, and none of those
// for the clouds, which would take most of the time to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// The order in which a request passes the plugins, after CoreDNS's plugin.cfg.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "cache", "kubernetes", "loop", "forward"}
}

func main() { coremain.Run() }
