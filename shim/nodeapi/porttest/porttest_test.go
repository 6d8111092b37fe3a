package porttest_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

func TestFree(t *testing.T) {
	for range 10 {
		port := porttest.Free(t)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // the next one is another
	}
}
