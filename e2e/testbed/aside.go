package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// asideNice makes a process weigh a tenth of others (sched(7)): it still gets on when the
// edge needs all cores for long.
const asideNice = 10

// stepAside has what stands for other machines, and for the network between them, take the
// cores that the edge leaves. The edge would have its cores to itself: what is measured there
// must not wait for an emulated link, nor for a store on a machine of its own. A process that
// is started again is like any other.
func (b *Bed) stepAside() error {
	all := b.topology.link.Status()
	if b.S3.group != nil {
		all = append(all, b.S3.group.Status()...)
	}
	if b.Redis != nil {
		all = append(all, b.Redis.group.Status()...)
	}
	for _, p := range b.Platform.Status() {
		if strings.HasSuffix(p.Name, "-"+Cloud) {
			all = append(all, p)
		}
	}
	for _, p := range all {
		if err := stepAside(p); err != nil {
			return fmt.Errorf("lowering the priority of %s: %w", p.Name, err)
		}
	}
	return nil
}

// stepAside lowers the priority of a process. Each has a session of its own, by which a kernel
// with autogroups weighs it, and looks at no thread's niceness beyond that.
func stepAside(p process.Status) error {
	if p.PID == 0 {
		return nil // it has just ended
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", p.PID), []byte(strconv.Itoa(asideNice)), 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Setpriority(unix.PRIO_PGRP, p.PID, asideNice)
	}
	return err
}
