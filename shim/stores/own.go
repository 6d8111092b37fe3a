package stores

import (
	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/ownlist"
)

// own is the node's own list: a file that the operator writes, and the control plane cannot.
type own = ownlist.File[listed.Stores]

// look reads the node's own list if it is another than before. One that cannot be read, or is not valid,
// changes nothing. It is called by Open, then by Watch.
func (s *Stores) look() error {
	if s.own == nil {
		return nil
	}
	list, changed, err := s.own.Look()
	if changed {
		s.replace(list.Messages())
	}
	return err
}

// delay says why a store may not be there yet.
func (s *Stores) delay() string {
	if s.own == nil {
		return ""
	}
	return ", as far as the node has read it; a change may take two minutes to get there"
}
