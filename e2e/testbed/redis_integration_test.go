//go:build integration

package testbed_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

func TestRedis(t *testing.T) {
	address := netip.MustParseAddrPort(porttest.Address(t))
	const password = "hunter2-a-secret"
	dir := t.TempDir()
	r, err := testbed.StartRedis(t.Context(), testbed.RedisConfig{
		DataDir: dir + "/data", LogFile: dir + "/log", Namespace: "/proc/self/ns/net", Address: address, Password: password,
	})
	if err != nil {
		log, _ := os.ReadFile(dir + "/log")
		t.Fatalf("%v: %s", err, log)
	}
	if err := r.Set(t.Context(), "jobs:1", []byte("value")); err != nil {
		t.Error(err)
	}
	for given, want := range map[string]string{password: "", "": "NOAUTH"} {
		client := redis.NewClient(&redis.Options{Addr: r.Address, Password: given, DisableIdentity: true})
		value, err := client.Get(t.Context(), "jobs:1").Result()
		if want == "" && (err != nil || value != "value") || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("with password %q: %q, %v", given, value, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	r.Close(context.Background())
	if conn, err := net.Dial("tcp", r.Address); err == nil {
		t.Error("it is there after its end")
		_ = conn.Close()
	}
}
