//go:build integration

package gateway

import (
	"bytes"
	"fmt"
	"net"
	"testing"
)

// A client that opens as many connections as it can takes no more than the gateway gives, and leaves it the admin interface
// and the requests on connections that there are. The bootstrap's own limit is the same with a larger number.
func TestAttackClientOpensConnections(t *testing.T) {
	const most = 20
	b := lay(t, coldState(), nil)
	limit := []byte(`"maxActiveDownstreamConnections": "20000"`)
	if !bytes.Contains(b.bootstrap, limit) {
		t.Fatalf("the bootstrap has no limit:\n%s", b.bootstrap)
	}
	b.bootstrap = bytes.ReplaceAll(b.bootstrap, limit, fmt.Appendf(nil, `"maxActiveDownstreamConnections": %d`, most))
	b.launch()
	b.ready()
	b.settle()
	b.listen("unix", b.gw.IngressSocket, "daemon")

	request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", thumbs().Hosts[0])
	first, answers := b.dial()
	if a, _ := b.send(first, answers, request); a.status != 200 {
		t.Fatal(a)
	}
	var open []net.Conn
	for {
		c, r := b.dial()
		open = append(open, c)
		if _, err := c.Write([]byte(request)); err != nil {
			break
		}
		if _, err := r.ReadByte(); err != nil {
			break
		}
		if len(open) > most {
			t.Fatalf("the gateway took %d connections", len(open)+1)
		}
	}
	if a, _ := b.send(first, answers, request); a.status != 200 {
		t.Errorf("a connection of before: %v", a)
	}
	b.admin.CloseIdleConnections()
	if n := b.stat("listener.0.0.0.0_" + fmt.Sprint(b.gw.Port) + ".downstream_global_cx_overflow"); n == 0 {
		t.Error("the admin interface tells of none that the gateway has refused")
	}
	for _, c := range open {
		c.Close()
	}
	b.eventually("room for others", func() bool { a, err := b.try(thumbs().Hosts[0], ""); return err == nil && a.status == 200 })
}
