//go:build !wasip1

package filterapi

import "encoding/json"

// Marshal returns the configuration as JSON, always the same for the same value. It
// refuses what ParseConfig would refuse, so that a wrong configuration fails where it
// is made. Filters only read: encoding/json would be a fifth of what a proxy compiles.
func (c *Config) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// Marshal returns the function as JSON, as Config.Marshal does.
func (f *Function) Marshal() ([]byte, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(f)
}
