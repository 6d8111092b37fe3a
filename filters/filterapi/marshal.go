//go:build !wasip1

package filterapi

import (
	"encoding/json"
	"fmt"
)

// Marshal returns the configuration as JSON, always the same for the same value. It
// refuses what ParseConfig would refuse, so that a wrong configuration fails where it
// is made. Filters only read: encoding/json would be a fifth of what a proxy compiles.
func (c *Config) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxConfigBytes {
		return nil, fmt.Errorf("is %d bytes long, at most %d are allowed", len(data), MaxConfigBytes)
	}
	return data, nil
}
