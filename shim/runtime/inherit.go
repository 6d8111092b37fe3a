package runtime

import (
	"os"
	"os/exec"
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
// what the container inherits. runc's task service has no other way to it.
func (s *Service) Monitor(inner runc.ProcessMonitor) runc.ProcessMonitor { return monitor{inner, s} }

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
func (m monitor) StartLocked(c *exec.Cmd) (chan runc.Exit, error) {
	m.service.inherit(c)
	return m.ProcessMonitor.StartLocked(c)
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
