package runtime

import (
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"

	runc "github.com/containerd/go-runc"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// bequeath has a container inherit files, until disinherit.
func (s *Service) bequeath(id string, files []*os.File) {
	if len(files) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id] = files
}

// disinherit closes what a container that was created has inherited.
func (s *Service) disinherit(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	descriptors.CloseAll(s.files[id])
	delete(s.files, id)
}

// Monitor returns a monitor of runc's processes, over another one, that has `runc create` hand on
// what the container inherits. runc's task service has no other way to it. It is for one call.
func (s *Service) Monitor(inner runc.ProcessMonitor) runc.ProcessMonitor {
	s.background.Go(s.startProcesses)
	return monitor{inner, s}
}

type monitor struct {
	runc.ProcessMonitor
	service *Service
}

// Start implements runc.ProcessMonitor.
func (m monitor) Start(c *exec.Cmd) (chan runc.Exit, error) {
	m.service.inherit(c)
	return m.ProcessMonitor.Start(c)
}

// StartLocked implements runc.ProcessMonitor.
func (m monitor) StartLocked(c *exec.Cmd) (exited chan runc.Exit, err error) {
	m.service.inherit(c)
	m.service.onThread(func() { exited, err = m.ProcessMonitor.StartLocked(c) })
	return exited, err
}

// onThread has something done on the thread for processes, or here when the service is closed.
func (s *Service) onThread(do func()) {
	done := make(chan struct{})
	select {
	case s.starts <- func() { defer close(done); do() }:
		<-done
	case <-s.closed:
		do()
	}
}

// startProcesses starts processes that are to end with the shim, on a thread that stays. The kernel kills such a process when
// the thread ends that has started it (prctl(2), PR_SET_PDEATHSIG), and containerd's monitor keeps a thread for the start
// alone: threads that were in another network namespace end.
func (s *Service) startProcesses() {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread() // not its end
	for {
		select {
		case start := <-s.starts:
			start()
		case <-s.closed:
			return
		}
	}
}

// inherit adds files to a command that creates a container, whose id comes last. The number has to
// be exact: runc takes its own descriptors for those that are missing.
func (s *Service) inherit(c *exec.Cmd) {
	create := slices.Index(c.Args, "create")
	if create < 0 {
		return
	}
	s.mu.Lock()
	files := s.files[c.Args[len(c.Args)-1]]
	s.mu.Unlock()
	if len(files) == 0 {
		return
	}
	c.ExtraFiles = files
	c.Args = slices.Insert(c.Args, create+1, "--preserve-fds", strconv.Itoa(len(files)))
}
