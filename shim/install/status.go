package install

import (
	"context"

	"github.com/headstart-mesh/headstart/shim/install/layout"
)

// States of a file in a Status.
const (
	InPlace = "in place"
	Changed = "changed" // by somebody else
	Missing = "missing"
)

// Status is what is on a node, for programs.
type Status struct {
	Installed bool        `json:"installed"`
	Version   string      `json:"version,omitempty"`
	Layout    layout.Kind `json:"layout,omitempty"`
	Socket    string      `json:"socket,omitempty"`
	// Containerd is whether it answers.
	Containerd bool `json:"containerd"`
	// RestartPending is whether containerd has not read its configuration as it is now.
	RestartPending bool         `json:"restartPending"`
	Files          []FileStatus `json:"files,omitempty"`
}

// FileStatus is one file.
type FileStatus struct {
	Path  string `json:"path"`
	State string `json:"state"`
	// Existed is whether the file was there before Headstart.
	Existed bool `json:"existed"`
}

// Sound is whether all is as the installer has left it, and containerd has read it.
func (s *Status) Sound() bool {
	for _, f := range s.Files {
		if f.State != InPlace {
			return false
		}
	}
	return s.Installed && !s.RestartPending
}

// Status changes nothing on the node.
func (i *Installer) Status(ctx context.Context) (*Status, error) {
	j, err := openJournal(i.Tree)
	if err != nil || j == nil {
		return &Status{}, err
	}
	s := &Status{Installed: true, Version: j.Installed, Layout: j.Layout, Socket: j.Socket, RestartPending: j.Restart != nil}
	for _, r := range j.Files {
		f := FileStatus{Path: r.Path, State: InPlace, Existed: r.Before != nil}
		now, err := i.Tree.Optional(r.Path, maxFile)
		switch {
		case err != nil:
			return nil, err
		case now == nil:
			f.State = Missing
		case hash(now.Data) != r.After:
			f.State = Changed
		}
		s.Files = append(s.Files, f)
	}
	containerd, err := i.connect(j.Socket)
	if err != nil {
		return nil, err
	}
	p, err := containerd.Process(ctx)
	s.Containerd = err == nil
	s.RestartPending = s.RestartPending && err == nil && p.ID == *j.Restart
	return s, nil
}
