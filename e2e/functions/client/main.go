// Command client is a job for tests: it connects to a server, asks it something, and prints when it had what, as a
// report.Report.
//
//	client KIND WAY TARGET [TIMES]
//
// KIND is tcp, tls, postgres or redis. WAY is how it connects:
//
//	dial        to TARGET, an address or a connection string, as any program does
//	socket      to the destination TARGET by its socket
//	descriptor  to the destination TARGET by the descriptor that it inherits
//	fetch       to the destination TARGET by a descriptor that it asks for, as "Pooled Resource Injection" does
//
// TIMES is how often it asks again, 5 by itself.
//
// With KIND hot it asks TIMES for 64 bytes, and for 64 KiB, by PostgreSQL. With KIND others it only connects, once
// and then TIMES. With KIND tenant it opens sessions of PostgreSQL one after the other, marks each as CLIENT_TENANT's,
// and tells CLIENT_GATE of whom it is, until it has had TIMES and the gate ends the connection; and it keeps another
// one with the destination CLIENT_KEPT all the while. With KIND exec it runs WAY, a program, with the rest as its
// arguments, and the answer is the first byte that this writes. With KIND hold it opens TIMES sessions of PostgreSQL,
// says so to CLIENT_GATE, and keeps them until that ends the connection.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

const (
	// limit bounds all that the program does: it waits for servers at 50 ms.
	limit = 2 * time.Minute
	// timesAgain is how often the same is asked after the first answer.
	timesAgain = 5
)

func main() {
	began := time.Now()
	if err := run(began, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(began time.Time, args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("%q is nothing to do", args)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	kind, way, target, times := args[0], args[1], args[2], timesAgain
	if len(args) > 3 && kind != "exec" {
		var err error
		if times, err = strconv.Atoi(args[3]); err != nil {
			return fmt.Errorf("how often: %w", err)
		}
	}
	r := report.Report{Began: began, Nonce: os.Getenv("CLIENT_NONCE")}
	var err error
	switch kind {
	case "hot":
		err = hot(ctx, way, target, times, &r)
	case "others":
		err = others(ctx, target, times, &r)
	case "exec":
		r.First, err = answers(ctx, way, args[2:])
	case "tenant":
		return tenant(target, times)
	case "hold":
		err = hold(ctx, way, target, times)
	default:
		err = once(ctx, began, kind, way, target, times, &r)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, way, err)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// asker is a connection that something can be asked on.
type asker interface {
	ask(ctx context.Context) error
	close()
}

// once connects, asks, and asks again.
func once(ctx context.Context, began time.Time, kind, way, target string, times int, r *report.Report) error {
	a, err := open(ctx, kind, way, target)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer a.close()
	if kind != "redis" { // whose client connects when it is asked
		r.Usable = time.Since(began)
	}
	if err := a.ask(ctx); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	r.First = time.Since(began)
	if p, is := a.(*postgres); is {
		r.PID = p.pid
	}
	if times == 0 {
		return nil
	}
	if r.Again, err = median(times, func() error { return a.ask(ctx) }); err != nil {
		return fmt.Errorf("asking again: %w", err)
	}
	return nil
}

// median is that of what fn takes.
func median(times int, fn func() error) (time.Duration, error) {
	all := make([]time.Duration, times)
	for i := range all {
		began := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[times/2], nil
}
