package objects

// Check takes all places for checks, until leave is called.
func (c *Cache) Check() (leave func()) {
	var all []func()
	for {
		one, _ := c.checks.Try("busy/f", "checks")
		if one == nil {
			break
		}
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}
