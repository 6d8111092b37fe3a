package identity

import (
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

var errRevoked = errors.New("the node's certificate is revoked")

// verify refuses the connection of a revoked node.
func (i *Identity) verify(state tls.ConnectionState) error {
	node, err := peertls.PeerName(state)
	if err != nil {
		return err
	}
	if i.revoked(node) {
		return errRevoked
	}
	return nil
}

// revoked says whether the operator's list has the node: it is a directory with a file for each. A name that is no file's is
// not on the list, and no node's either.
func (i *Identity) revoked(node string) bool {
	if i.config.RevokedDir == "" || filepath.Base(node) != node {
		return false
	}
	_, err := os.Stat(filepath.Join(i.config.RevokedDir, node))
	return err == nil
}

// Admit refuses the requests of a revoked node, also by connections from before: it closes them.
func (i *Identity) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && i.verify(*r.TLS) != nil {
			panic(http.ErrAbortHandler) // as if there were no listener
		}
		next.ServeHTTP(w, r)
	})
}
