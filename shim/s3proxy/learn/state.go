package learn

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// MaxStateBytes bounds what Parse reads: all templates, with each byte escaped, and their numbers.
const (
	MaxStateBytes = (MaxTemplates + 1) * (6*maxText + 512)
	maxText       = reference.MaxRouteBytes + 1 + reference.MaxTemplateBytes
)

// state is a learner as JSON. Texts that only one read has proposed are not in it.
type state struct {
	Credit    float64      `json:"credit"`
	Templates []*candidate `json:"templates"`
}

// MarshalJSON returns what has been learned, for Parse.
func (l *Learner) MarshalJSON() ([]byte, error) { return json.Marshal(state{l.credit, l.candidates}) }

// Parse returns the learner that MarshalJSON has written.
func Parse(data []byte) (*Learner, error) {
	if len(data) > MaxStateBytes {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(data), MaxStateBytes)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if len(s.Templates) > MaxTemplates {
		return nil, fmt.Errorf("has %d templates, at most %d are allowed", len(s.Templates), MaxTemplates)
	}
	if math.Abs(s.Credit) > maxCredit {
		return nil, errors.New("has an impossible credit")
	}
	known := map[string]bool{}
	for _, c := range s.Templates {
		if c == nil {
			return nil, errors.New("has an empty template")
		}
		if err := c.parse(); err != nil {
			return nil, fmt.Errorf("template %.64q %w", c.Text, err)
		}
		if !c.History.possible() || c.Depth < 0 || known[c.Text] {
			return nil, fmt.Errorf("template %.64q has an impossible record, or is there twice", c.Text)
		}
		known[c.Text] = true
		c.judge()
	}
	l := New()
	l.candidates, l.credit = s.Templates, s.Credit
	slices.SortStableFunc(l.candidates, better)
	return l, nil
}
