//go:build integration

package testbed_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

func TestPostgres(t *testing.T) {
	ctx := t.Context()
	log := t.TempDir() + "/log"
	p, err := testbed.StartPostgres(ctx, testbed.PostgresConfig{
		LogFile: log, Namespace: "/proc/self/ns/net", Address: netip.MustParseAddrPort(porttest.Address(t)),
		User: "app", Password: "hunter2-a-secret", Database: "shop", Settings: []string{"max_connections = 10"},
	})
	if err != nil {
		said, _ := os.ReadFile(log)
		t.Fatalf("%v: %s", err, said)
	}
	connect := func(user, password, mode string) error {
		dsn := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: p.Address, Path: "/shop",
			RawQuery: url.Values{"sslmode": {mode}, "sslrootcert": {p.Roots}}.Encode()}
		conn, err := pgconn.Connect(ctx, dsn.String())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	for _, mode := range []string{"verify-full", "disable"} {
		if err := connect("app", "hunter2-a-secret", mode); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	var refused *pgconn.PgError
	if err := connect("app", "wrong", "verify-full"); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := errors.Join(p.Restart(ctx), p.Exec(ctx, "create table t ()")); err != nil {
		t.Error(err)
	}
	p.Close(context.Background())
	if conn, err := net.Dial("tcp", p.Address); err == nil {
		t.Error("it is there after its end")
		_ = conn.Close()
	}
	if _, err := os.Stat(p.Roots); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are there after its end: %v", err)
	}
}
