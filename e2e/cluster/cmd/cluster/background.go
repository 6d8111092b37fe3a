package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster"
)

// followInterval is how late the supervisor's progress is shown at most.
const followInterval = 50 * time.Millisecond

// inBackground runs this program's "up" in a session of its own, shows its progress until it
// is up, and leaves it.
func inBackground(ctx context.Context, dir string) error {
	logs := filepath.Join(dir, "log")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(logs, cluster.OwnLog))
	if err != nil {
		return err
	}
	defer log.Close()
	progress, err := os.Open(log.Name())
	if err != nil {
		return err
	}
	defer progress.Close()
	args := []string{}
	for _, a := range os.Args[1:] {
		if a != "--detach" {
			args = append(args, a)
		}
	}
	cmd := osexec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return follow(ctx, progress, cmd.Process, ended)
}

// follow copies the supervisor's output until the line that says that it is up.
func follow(ctx context.Context, log io.Reader, supervisor *os.Process, ended <-chan error) error {
	lines, tick := bufio.NewReader(log), time.NewTicker(followInterval)
	defer tick.Stop()
	for partial := ""; ; {
		line, err := lines.ReadString('\n')
		partial += line
		if err == nil {
			up := strings.HasPrefix(partial, "export ")
			if up {
				fmt.Print(partial)
				return nil
			}
			fmt.Fprint(os.Stderr, partial)
			partial = ""
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case err := <-ended:
			rest, _ := io.ReadAll(lines)
			fmt.Fprint(os.Stderr, partial, string(rest))
			return errors.Join(errors.New("the cluster did not come up"), err)
		case <-ctx.Done():
			// It takes down what it has brought up, and then ends.
			return errors.Join(ctx.Err(), supervisor.Signal(syscall.SIGTERM), <-ended)
		case <-tick.C:
		}
	}
}
