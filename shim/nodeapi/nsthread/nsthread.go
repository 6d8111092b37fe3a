// Package nsthread runs code on an OS thread of its own, in a network namespace if
// wanted, and throws the thread away afterwards.
//
// A thread that has changed its namespace must not go back to the Go scheduler: any
// goroutine could land on it. And a child's parent-death signal is tied to the thread
// that forked it (prctl(2), PR_SET_PDEATHSIG): that thread must outlive the child.
package nsthread

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls fn on a fresh thread and returns fn's error when it is done. With a
// namespace path the thread is in that network namespace; empty means the caller's.
func Run(namespace string, fn func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			result <- enter(namespace, fn)
			return // still locked, so the runtime ends the thread
		}
		// This is the process's main thread, which the runtime parks instead of ending
		// and whose namespace /proc/<pid> shows as ours. Keep it busy while another
		// goroutine finds another thread.
		other := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(other)
			result <- enter(namespace, fn)
		}()
		<-other
		runtime.UnlockOSThread()
	}()
	return <-result
}

func enter(namespace string, fn func() error) error {
	if namespace == "" {
		return fn()
	}
	f, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	f.Close() // only read; the thread now holds the namespace
	if err != nil {
		return fmt.Errorf("entering network namespace %s: %w", namespace, err)
	}
	return fn()
}
