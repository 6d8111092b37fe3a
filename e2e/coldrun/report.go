package coldrun

import (
	"encoding/json"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/e2e/host"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Report is what a run of several cases leaves, for scripts and for the pages.
type Report struct {
	// Title is that of the lines' table.
	Title   string         `json:"title"`
	Commit  string         `json:"commit"` // of the program that measured
	At      time.Time      `json:"at"`     // the report's making
	Machine map[string]any `json:"machine"`
	Summary result.Summary `json:"summary"`
	Lines   []Line         `json:"lines"`
	Checks  []result.Check `json:"checks"`
	Notes   []string       `json:"notes,omitempty"`
}

// NewReport is of what this program has measured by now.
func NewReport(title string, summary result.Summary, rows []Row, checks []result.Check, notes ...string) Report {
	return Report{Title: title, Commit: nodeapi.Version, At: time.Now().UTC().Truncate(time.Second), Machine: host.Describe(),
		Summary: summary, Lines: Lines(rows), Checks: checks, Notes: notes}
}

// Write replaces the file.
func (r Report) Write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
