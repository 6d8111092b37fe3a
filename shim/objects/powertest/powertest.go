// Package powertest is a disk whose power is cut, for tests of what has to outlive that. It needs root.
package powertest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// shutDown is EXT4_IOC_SHUTDOWN, and withoutJournal has it write nothing more, as a power cut.
	shutDown       = 0x8004587d
	withoutJournal = 2

	size = 64 << 20
)

// Disk is one with a file system, mounted on Dir.
type Disk struct {
	Dir string

	t      testing.TB
	device string
	mount  []string
}

// Mount makes a disk that is there until the end of the test.
func Mount(t testing.TB, options ...string) *Disk {
	t.Helper()
	d := &Disk{Dir: t.TempDir(), t: t}
	image := t.TempDir() + "/image"
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	d.run("mkfs.ext4", "-q", image)
	d.device = d.run("losetup", "--find", "--show", image)
	t.Cleanup(func() { d.run("losetup", "--detach", d.device) })
	d.mount = append(options, d.device, d.Dir)
	d.run("mount", d.mount...)
	t.Cleanup(func() { _ = unix.Unmount(d.Dir, unix.MNT_DETACH) })
	return d
}

func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %v: %v, %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Cut cuts the power: any part of what was not synced is left. synced: somebody else has just synced all of it.
func (d *Disk) Cut(synced bool) {
	err := error(nil)
	if synced {
		err = with(d.Dir, unix.Syncfs)
	}
	if err := errors.Join(err, Shut(d.Dir)); err != nil {
		d.t.Error(err)
	}
}

// Shut has an ext4 file system write nothing more, and fail.
func Shut(dir string) error {
	return with(dir, func(fd int) error { return unix.IoctlSetPointerInt(fd, shutDown, withoutJournal) })
}

func with(dir string, do func(fd int) error) error {
	disk, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(int(disk.Fd())), disk.Close())
}

// Restore mounts the disk again. Other programs may have copies of the mount for a moment, and to mount it then would bring
// back the file system that is shut down.
func (d *Disk) Restore() {
	d.t.Helper()
	d.run("umount", d.Dir)
	for {
		f, err := os.OpenFile(d.device, os.O_RDWR|os.O_EXCL, 0)
		if err == nil {
			_ = f.Close() // nothing is written
			break
		}
		if d.t.Context().Err() != nil || !errors.Is(err, unix.EBUSY) {
			d.t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // polls
	}
	d.run("mount", d.mount...)
}
