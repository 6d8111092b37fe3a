package mesh

import "time"

// NotAfter is when the certificate ends; zero while there is none.
func (c *Client) NotAfter() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return time.Time{}
	}
	return c.current.leaf.NotAfter
}
