// Command query is a sample program and function that asks PostgreSQL and Redis, by pgx and go-redis as they are. The
// environment says where the servers are: PGHOST and its like, and REDIS_URL.
//
//	query pg STATEMENT
//	query descriptor NAME STATEMENT     by a connection that it inherits
//	query cancel                        one that takes a minute, and is cancelled
//	query redis WORD...
//	query                               a function: what is asked for is in the request's path and the parameter q;
//	                                    late is asked for when it has answered
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
)

// cancelPause is between two requests to cancel.
const cancelPause = 100 * time.Millisecond

// firstDescriptor is that of the first file which a program inherits.
const firstDescriptor = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	said, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(said)
}

func run(ctx context.Context, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", serve(ctx)
	case len(args) == 2 && args[0] == "pg":
		return once(ctx, nil, args[1])
	case len(args) == 3 && args[0] == "descriptor":
		inherited, err := inherit(args[1])
		if err != nil {
			return "", err
		}
		return once(ctx, inherited, args[2])
	case len(args) == 1 && args[0] == "cancel":
		return cancelled(ctx)
	case len(args) > 1 && args[0] == "redis":
		return ask(ctx, args[1:])
	}
	return "", fmt.Errorf("%q is nothing to do", args)
}

// once asks by a connection of its own, or by one that is there.
func once(ctx context.Context, there net.Conn, statement string) (said string, err error) {
	c, err := pgx.ParseConfig("")
	if err != nil {
		return "", err
	}
	if there != nil {
		c.DialFunc = func(context.Context, string, string) (net.Conn, error) { return there, nil }
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, statement).Scan(&said)
	return said, errors.Join(err, conn.Close(ctx))
}

// cancelled returns the code with which a query ends that is cancelled until then: it may not have begun at first.
func cancelled(ctx context.Context) (code string, err error) {
	conn, err := pgx.Connect(ctx, "")
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(60)")
		ended <- errors.Join(err, conn.Close(ctx))
	}()
	for {
		select {
		case err := <-ended:
			var said *pgconn.PgError
			if !errors.As(err, &said) {
				return "", fmt.Errorf("it is not cancelled: %w", err)
			}
			return said.Code, nil
		case <-time.After(cancelPause):
			if err := conn.PgConn().CancelRequest(ctx); err != nil {
				return "", fmt.Errorf("cancelling: %w", err)
			}
		}
	}
}

// inherit returns a connection that the program has since its start.
func inherit(name string) (net.Conn, error) {
	names := strings.Split(os.Getenv("HEADSTART_DESCRIPTORS"), ":")
	at := slices.Index(names, name)
	if at < 0 {
		return nil, fmt.Errorf("%q is not among %q", name, names)
	}
	f := os.NewFile(uintptr(firstDescriptor+at), name)
	defer f.Close() // the connection has a copy
	return net.FileConn(f)
}

func ask(ctx context.Context, words []string) (string, error) {
	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return "", err
	}
	c := redis.NewClient(o)
	said, err := command(ctx, c, words)
	return said, errors.Join(err, c.Close())
}

func command(ctx context.Context, c *redis.Client, words []string) (string, error) {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	said, err := c.Do(ctx, all...).Result()
	return fmt.Sprint(said), err
}
