package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache/copying"
	"github.com/headstart-mesh/headstart/e2e/functions/media/order"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// copyingRoom has room for all that the workflows need: the paper's cache is measured at its best.
	copyingRoom = 16 << 30
	// dataServe is the port of the paper's component of that name.
	dataServe = 9999
	// ownDir is each function's own space, within its sandbox.
	ownDir = "/own"
)

// copier does jobs with the paper's cache. Its part in the function, the wrapper of section 3.3, is played from outside
// of the sandbox, by the same copies into the sandbox's file system and out of it. It knows where an object is, without
// a question to etcd.
type copier struct {
	bed    *testbed.Bed
	nodes  []string
	caches []*copying.Cache
	stores []*testbed.S3 // as the nodes reach it
	next   atomic.Int64  // names of files
}

// copier has its own functions on the nodes, which bring no inputs.
func (b *bench) copier(ctx context.Context, bed *testbed.Bed, nodes []string) (c *copier, end func() error, err error) {
	if err := applyFlows(ctx, bed, "own-", nodes, false, ""); err != nil {
		return nil, nil, err
	}
	c = &copier{bed: bed, nodes: nodes}
	dir := filepath.Join(b.Out, "cache", "copying")
	var servers []net.Listener
	end = func() error {
		for i, s := range servers {
			_ = s.Close() // it only listens
			c.stores[i].Close(context.Background())
		}
		return os.RemoveAll(dir)
	}
	for _, name := range nodes {
		node, own := bed.Node(name), filepath.Join(dir, name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return nil, nil, err
		}
		var l net.Listener
		err := nsthread.Run(node.Namespace, func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(node.Address, dataServe).String())
			return err
		})
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		one := copying.New(own, copyingRoom)
		address, err := netip.ParseAddrPort(strings.TrimPrefix(bed.S3.Endpoint, "http://"))
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		servers, c.caches = append(servers, l), append(c.caches, one)
		c.stores = append(c.stores,
			testbed.TakeS3(testbed.S3Config{Namespace: node.Namespace, Address: address, Secret: bed.S3.Secret}))
		go one.Serve(l) // until end
	}
	return c, end, nil
}

func (c *copier) do(ctx context.Context, j job, key func(string) string) (s spent, err error) {
	node := c.nodes[j.node]
	function := functionOf("own-", j.function, node)
	if _, err := give(ctx, c.bed, node, function, nil, nil); err != nil { // it runs
		return s, err
	}
	root, err := rootOf(function)
	if err != nil {
		return s, err
	}
	if err := os.MkdirAll(filepath.Join(root, ownDir), 0o777); err != nil {
		return s, err
	}
	if err := os.Chmod(filepath.Join(root, ownDir), 0o777); err != nil {
		return s, err
	}
	file := func() string { return filepath.Join(ownDir, fmt.Sprint(c.next.Add(1))) }
	var used []string
	defer func() {
		for _, f := range used {
			err = errors.Join(err, os.Remove(filepath.Join(root, f)))
		}
	}()
	began := time.Now()
	var names []string // of inputs, and their files
	for i, in := range j.in {
		own, name := file(), order.Input
		if len(j.in) > 1 {
			name = order.Named(order.Names[i])
		}
		used, names = append(used, own), append(names, name, own)
		if err := c.get(ctx, j.node, key(in), filepath.Join(root, own)); err != nil {
			return s, err
		}
	}
	s.down = time.Since(began)
	var programs []order.Program
	for _, p := range j.programs {
		o := order.Program{Keep: file()}
		for _, a := range p.args {
			o.Args = append(o.Args, strings.NewReplacer(names...).Replace(a))
		}
		used, programs = append(used, o.Keep), append(programs, o)
	}
	done, err := give(ctx, c.bed, node, function, programs, nil)
	if err != nil {
		return s, err
	}
	s.ran = done.Ran
	began = time.Now()
	for i, p := range j.programs {
		if err := c.put(ctx, j.node, key(p.out), filepath.Join(root, programs[i].Keep), p.final); err != nil {
			return s, err
		}
	}
	s.up = time.Since(began)
	return s, nil
}

// get brings an object from the node's cache, from the other node's, or from the store.
func (c *copier) get(ctx context.Context, node int, key, to string) error {
	err := c.caches[node].Get(key, to)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if other := 1 - node; c.caches[other].Has(key) {
		var conn net.Conn
		at := netip.AddrPortFrom(c.bed.Node(c.nodes[other]).Address, dataServe)
		err := nsthread.Run(c.bed.Node(c.nodes[node]).Namespace, func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", at.String())
			return err
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		return copying.From(conn, key, to)
	}
	data, err := c.stores[node].Get(ctx, key)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, data, 0o644), c.caches[node].Put(key, to))
}

// put keeps an output on the node; the workflow's last one goes to the store.
func (c *copier) put(ctx context.Context, node int, key, from string, final bool) error {
	if !final {
		return c.caches[node].Put(key, from)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return c.stores[node].Put(ctx, key, bytes.NewReader(data))
}

// drop has the nodes forget the objects whose keys begin with a prefix.
func (c *copier) drop(prefix string) error {
	var errs []error
	for _, one := range c.caches {
		errs = append(errs, one.Drop(prefix))
	}
	return errors.Join(errs...)
}

// rootOf is the file system of a function's sandbox.
func rootOf(function string) (string, error) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return "", err
	}
	for _, name := range all {
		env, err := os.ReadFile(name)
		// One that cannot be read has ended.
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00MEDIA="+function+"\x00")) {
			return filepath.Join(filepath.Dir(name), "root"), nil
		}
	}
	return "", fmt.Errorf("no process is the function %s", function)
}
