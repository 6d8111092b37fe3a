package stores

import (
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// Allowed returns why a function may not read an object of a store by what the operator allows; nil: it may. It asks no server.
func (s *Stores) Allowed(function, name string, ref source.Reference) error {
	from, err := s.Source(function, name)
	if err != nil {
		return err
	}
	lists := from.(*observed).opened.(interface {
		Allowed(ref source.Reference, held string) (ranged.Object, error)
	})
	_, err = lists.Allowed(ref, "")
	return err
}
