// Command linkemu runs an emulated link between two network namespaces until it gets
// SIGINT or SIGTERM. It prints "ready" when packets flow, and counters as JSON at the end.
//
//	linkemu -a /run/netns/edge,emu0,10.8.0.1/24 -b /run/netns/cloud,emu0,10.8.0.2/24 -delay 20ms -rate 250000000
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/e2e/linkemu"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "linkemu:", err)
		os.Exit(1)
	}
}

func run() error {
	var c linkemu.Config
	flag.Func("a", "one end: `namespace-path,device,address/prefix`", parseEnd(&c.A))
	flag.Func("b", "the other end: `namespace-path,device,address/prefix`", parseEnd(&c.B))
	flag.DurationVar(&c.Delay, "delay", 0, "one way")
	flag.DurationVar(&c.Jitter, "jitter", 0, "the delay varies by as much in both directions")
	flag.DurationVar(&c.Wander, "wander", 0, "the delay drifts, to a new one each so often; 0: each packet has its own")
	flag.Int64Var(&c.Rate, "rate", 0, "bit/s; 0: no limit")
	flag.IntVar(&c.QueueLimit, "queue", 0, "bytes that may wait for the line; 0: by rate and delay")
	flag.Uint64Var(&c.Seed, "seed", 0, "of the jitter")
	flag.Parse()

	runtime.GOMAXPROCS(2) // one per direction: idle ones would only wake up to look for work
	goFirst()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	link, err := linkemu.Open(c)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {
	case <-signals:
	case <-link.Done():
	}
	return errors.Join(link.Close(), json.NewEncoder(os.Stdout).Encode(link.Stats()))
}

// goFirst puts all threads, and so the later ones they start, before other processes: a
// late link distorts what is measured across it. Where that is not permitted the link
// still works, and its worst lateness shows the difference.
func goFirst() {
	const highestPriority = -20
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, highestPriority)
		}
	}
}

func parseEnd(end *linkemu.End) func(string) error {
	return func(s string) error {
		parts := strings.Split(s, ",")
		if len(parts) != 3 {
			return errors.New("want namespace-path,device,address/prefix")
		}
		end.Namespace, end.Device, end.Address = parts[0], parts[1], parts[2]
		return nil
	}
}
