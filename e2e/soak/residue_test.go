//go:build integration

package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// settle is how long it may take until nothing is left: hints are kept for some
	// seconds, and so are requests of clients that a daemon has not seen leave.
	settle = 60 * time.Second
	// idle is how many goroutines and descriptors more than in the beginning a daemon may
	// have: those of connections that it keeps for the next request, to the other node and
	// to Redis.
	idle = 48
)

// amount is what a daemon holds.
type amount struct{ goroutines, descriptors int }

// holds asks a node's daemon.
func (w *world) holds(ctx context.Context, n *node) (amount, error) {
	metrics, err := w.metrics(ctx, n)
	if err != nil {
		return amount{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid(w.daemon(n))))
	return amount{goroutines: int(metrics["go_goroutines"]), descriptors: len(files)}, err
}

// metrics are a daemon's, by name and labels.
func (w *world) metrics(ctx context.Context, n *node) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			all[name] = v
		}
	}
	return all, nil
}

// eventually asks until the answer is nil, and returns the last one that was heard in time.
func eventually(ask func(ctx context.Context) error) error {
	var last error
	err := testbed.Poll(context.Background(), settle, func(ctx context.Context) error {
		err := ask(ctx)
		if ctx.Err() == nil {
			last = err
		}
		return err
	})
	if err != nil && last == nil {
		return err
	}
	return last
}

// nothingLeft waits until a node has nothing of any request.
func (w *world) nothingLeft(n *node, before amount) error {
	return eventually(func(ctx context.Context) error {
		metrics, err := w.metrics(ctx, n)
		if err != nil {
			return err
		}
		zeros := []string{"headstart_buffer_bytes", "headstart_buffer_inputs", "headstart_ingress_requests_in_flight", "headstart_function_calls_in_flight"}
		if n == w.edge { // which has never been killed: see noFiles
			zeros = append(zeros, "headstart_function_sockets")
		}
		kept := 0 // objects, each of which has a file and a descriptor
		for name, v := range metrics {
			if strings.HasPrefix(name, "headstart_cache_objects") {
				kept += int(v)
			}
			for _, zero := range zeros {
				if strings.HasPrefix(name, zero) && v != 0 {
					return fmt.Errorf("%s is %v", name, v)
				}
			}
		}
		if err := errors.Join(w.noFiles(n, kept), w.noMounts(n)); err != nil {
			return err
		}
		now, err := w.holds(ctx, n)
		if err != nil {
			return err
		}
		if now.goroutines > before.goroutines+idle || now.descriptors > before.descriptors+kept+idle {
			return fmt.Errorf("it has %+v, and had %+v", now, before)
		}
		return nil
	})
}

// noFiles looks for what requests and instances leave in a node's directories, besides the objects that are kept.
func (w *world) noFiles(n *node, kept int) error {
	for _, dir := range []string{filepath.Join(n.state, "buffer"), filepath.Join(n.state, "instances"), n.socket("memory/buffer"), n.socket("memory/instances")} {
		object := "" // the last one
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path == dir || d.Name() == "redis-name":
				return nil
			case object != "" && path == object+".note": // for the next daemon
				return nil
			case filepath.Base(dir) == "buffer" && kept > 0:
				kept--
				object = path
				return nil
			}
			return fmt.Errorf("there is %s", path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noMounts looks for what the node's daemon sees mounted below its directories.
func (w *world) noMounts(n *node) error {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", w.pid(w.daemon(n))))
	if err != nil {
		return err
	}
	for mount := range strings.Lines(string(mounts)) {
		if strings.Contains(mount, n.state) || strings.Contains(mount, n.run) {
			return fmt.Errorf("there is the mount %s", mount)
		}
	}
	return nil
}

// nothingInRedis waits until the nodes have nothing in Redis.
func (w *world) nothingInRedis() error {
	return eventually(func(ctx context.Context) error {
		info, err := w.redis.Info(ctx, "keyspace").Result()
		if err == nil && strings.Contains(info, "db1:") {
			return errors.New(info)
		}
		return err
	})
}
