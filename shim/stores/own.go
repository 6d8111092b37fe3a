package stores

import (
	"os"

	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// own is the node's own list: a file that the operator writes, and the control plane cannot.
type own struct {
	path string
	// Of the one who looks: Open, then Watch.
	read os.FileInfo // the file that was read last
	err  error       // what is wrong with it
}

// look reads the node's own list if it is another than before. One that cannot be read, or is not valid,
// changes nothing.
func (s *Stores) look() error {
	o := s.own
	if o == nil {
		return nil
	}
	// Kubernetes replaces the whole file, and an editor writes into it.
	now, err := os.Stat(o.path)
	if err == nil && o.read != nil && os.SameFile(now, o.read) && now.ModTime().Equal(o.read.ModTime()) {
		return o.err
	}
	list, err := listed.Load(o.path)
	if o.read, o.err = now, err; err == nil {
		s.replace(list.Messages())
	}
	return err
}

// delay says why a store may not be there yet.
func (o *own) delay() string {
	if o == nil {
		return ""
	}
	return ", as far as the node has read it; a change may take two minutes to get there"
}
