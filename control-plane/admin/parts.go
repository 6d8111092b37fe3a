package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// PartsFile is what `headstart up` writes into its run directory, for the control plane to show.
const PartsFile = "parts.json"

// Part is one of the embedded platform's processes.
type Part struct {
	Name string `json:"name"`
	// State is Starting, Running, Waiting (to be started again) or Ended.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Restarts is how often it was started again, by itself.
	Restarts int `json:"restarts"`
	// LastExit is how it ended last, empty if it never did.
	LastExit string    `json:"lastExit,omitempty"`
	ExitedAt time.Time `json:"exitedAt,omitzero"`
}

// ReadParts returns the processes of the platform with this run directory; none if nobody
// supervises any.
func ReadParts(runDir string) ([]Part, error) {
	b, err := os.ReadFile(filepath.Join(runDir, PartsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var parts []Part
	if err == nil {
		err = json.Unmarshal(b, &parts)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the platform's processes: %w", err)
	}
	return parts, nil
}
