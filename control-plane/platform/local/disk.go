package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// disk is what survives a restart of the control plane. Instances do not: the nodes
// know them and tell.
type disk struct{ path string }

type saved struct {
	// Generation is the last one given, perhaps to a function that was deleted since.
	Generation int64               `json:"generation"`
	Functions  []platform.Function `json:"functions"`
	Nodes      []string            `json:"nodes"`
}

func (d disk) load() (saved, error) {
	var s saved
	b, err := os.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading the deployed functions; fix %s, or remove it and deploy again: %w", d.path, err)
	}
	return s, nil
}

func (d disk) save(s saved) error {
	slices.SortFunc(s.Functions, func(a, b platform.Function) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(s.Nodes)
	b, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(d.path), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(d.path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the deployed functions: %w", err)
	}
	return nil
}
