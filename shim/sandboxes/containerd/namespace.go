package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// path of a sandbox's network namespace. It says whose it is, so that a restarted
// daemon can sweep what an earlier one left.
func (n *network) path(id string) string { return filepath.Join(n.namespaces, id) }

// newNamespace makes the sandbox's network namespace, with its loopback device up, and
// returns its path. One that exists is an error and stays as it is.
func (n *network) newNamespace(id string) (string, error) {
	path := n.path(id)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("naming a network namespace: %w", err)
	}
	f.Close() // it is a mount point, and stays empty
	if err := onFreshThread(func() error { return unshareTo(path) }); err != nil {
		return "", errors.Join(fmt.Errorf("making a network namespace: %w", err), n.removeNamespace(id))
	}
	return path, nil
}

// onFreshThread runs fn on a thread that ends with it: one that has changed its
// namespace must not go back to the scheduler, where any goroutine could land on it.
func onFreshThread(fn func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			result <- fn()
			return
		}
		// The process's main thread does not end, and would hold the namespace for good.
		// Keep it busy while another goroutine finds another thread.
		other := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(other)
			result <- fn()
		}()
		<-other
		runtime.UnlockOSThread()
	}()
	return <-result
}

func unshareTo(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func (n *network) removeNamespace(id string) error {
	err := unix.Unmount(n.path(id), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting a network namespace: %w", err)
	}
	if err := os.Remove(n.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a network namespace: %w", err)
	}
	return nil
}
