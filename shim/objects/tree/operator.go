package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// aboutName is a file with what a version is of, for the node's operator.
	aboutName = "about.json"
	// operator stands for a pod: a version that is pinned belongs to it.
	operator = hidden + "operator"
	// pinnedShare is the divisor for what an operator can pin of the disk: half. Versions that share files count each.
	pinnedShare = 2
)

// Held is a version that the node has.
type Held struct {
	// At names it.
	At        string `json:"-"`
	Namespace string `json:"-"`
	Store     string `json:"store"`
	Prefix    string `json:"prefix"`
	Bytes     int64  `json:"bytes"`
	Objects   int    `json:"objects"`
	// Pods are those that have it.
	Pods   int  `json:"-"`
	Pinned bool `json:"-"`
	// Damaged: a file is not what its object was. No other pod gets it.
	Damaged bool `json:"-"`
}

// note writes down what a version is of.
func (s *Set) note(at string, of Prefix, p plan) error {
	h := Held{Store: of.Store, Prefix: of.Prefix.String(), Objects: len(p.files)}
	for _, o := range p.files {
		h.Bytes += o.Size
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = s.root.WriteFile(filepath.Join(at, aboutName), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting what a volume is of: %w", err)
	}
	return nil
}

// List returns the versions that are there. Those of a daemon that noted nothing have no prefix.
func (s *Set) List() (all []Held, err error) {
	err = s.eachWhole(func(at string, pods []string) error {
		all = append(all, s.about(at, pods))
		return nil
	})
	return all, err
}

// about is what is known of a version that pods have, the operator perhaps among them.
func (s *Set) about(at string, pods []string) (h Held) {
	if b, err := s.root.ReadFile(filepath.Join(at, aboutName)); err == nil {
		_ = json.Unmarshal(b, &h) // what cannot be read was not noted
	}
	h.At, h.Namespace, h.Pods, h.Damaged = at, filepath.Dir(at), len(pods), s.isDamaged(at)
	if h.Pinned = slices.Contains(pods, operator); h.Pinned {
		h.Pods--
	}
	return h
}

// Pin has a version stay while no pod has it, also over restarts of the daemon; stay is false to unpin it.
func (s *Set) Pin(at string, stay bool) error {
	if !stay {
		return s.root.RemoveAll(filepath.Join(at, pinsName, operator))
	}
	all, err := s.List()
	var disk unix.Statfs_t
	if err = errors.Join(err, unix.Statfs(s.root.Name(), &disk)); err != nil {
		return fmt.Errorf("looking whether a volume can be pinned: %w", err)
	}
	var bytes, pinned int64
	for _, h := range all {
		if h.At == at {
			bytes = h.Bytes
		} else if h.Pinned {
			pinned += h.Bytes
		}
	}
	if most := int64(disk.Blocks) * disk.Bsize / pinnedShare; pinned+bytes > most {
		return problem.New(http.StatusTooManyRequests, "CachePinsFull", "", fmt.Sprintf("the node pins volumes of at most %d bytes, "+
			"half of its disk: those of %d are pinned, and this one has %d; unpin some", most, pinned, bytes))
	}
	return s.pin(at, operator, "pinned")
}

// DropOne removes a version, pinned or not. It is false for one that a pod has.
func (s *Set) DropOne(at string) (bool, error) {
	if err := s.Pin(at, false); err != nil {
		return false, err
	}
	return s.remove(at)
}
