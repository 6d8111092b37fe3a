package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

// The sizes that hot asks for, in bytes.
const (
	smallBytes = 64
	largeBytes = 64 << 10
)

// hot asks an open session for rows of two sizes.
func hot(ctx context.Context, way, target string, times int, r *report.Report) error {
	p, err := openPostgres(ctx, way, target)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer p.close()
	row := func(bytes int) func() error {
		return func() error {
			var row string
			err := p.conn.QueryRow(ctx, "select repeat('x', $1::int)", bytes).Scan(&row)
			if err == nil && len(row) != bytes {
				err = fmt.Errorf("a row has %d bytes", len(row))
			}
			return err
		}
	}
	if r.Small, err = median(times, row(smallBytes)); err != nil {
		return err
	}
	r.Large, err = median(times, row(largeBytes))
	return err
}

// others connects to an address, which may be some destination's: once, and then TIMES.
func others(ctx context.Context, target string, times int, r *report.Report) (err error) {
	connect := func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", target)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	began := time.Now()
	if err := connect(); err != nil {
		return err
	}
	r.Usable = time.Since(began)
	r.Again, err = median(times, connect)
	return err
}

// answers runs a program, and returns how long it took to write its first byte.
func answers(ctx context.Context, program string, args []string) (time.Duration, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, err
	}
	_, read := io.ReadFull(out, make([]byte, 1))
	took := time.Since(began)
	_, drained := io.Copy(io.Discard, out)
	return took, errors.Join(cmd.Wait(), read, drained)
}

// hold keeps many sessions until the gate is closed.
func hold(ctx context.Context, way, target string, times int) error {
	for i := range times {
		p, err := openPostgres(ctx, way, target)
		if err == nil {
			err = p.ask(ctx)
		}
		if err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		defer p.close()
	}
	gate, err := new(net.Dialer).DialContext(ctx, "tcp", os.Getenv("CLIENT_GATE"))
	if err != nil {
		return err
	}
	defer gate.Close() // it was only written to
	if _, err := fmt.Fprintln(gate, "open"); err != nil {
		return err
	}
	if err := gate.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, gate)
	return err
}
