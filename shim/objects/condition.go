package objects

import "time"

// Condition is how keeping goes.
type Condition struct {
	// Bytes are of objects that no input uses, and Limit is what these and inputs may take. It is 0 if no object is kept.
	Bytes, Limit int64
	// Room is what files outside of the buffer may take more, and Lacks what the disk has too little free for keeping.
	Room, Lacks int64
	// Damages are how many objects were not what had arrived, and Damaged is when the last one was found.
	Damages int
	Damaged time.Time
}

// Condition says how keeping goes now.
func (c *Cache) Condition() Condition {
	lacks := c.Buffer.DiskLacks(true)
	now := Condition{Room: max(-c.Buffer.DiskLacks(c.Spared), 0), Lacks: max(lacks, 0)}
	for _, t := range c.Buffer.Tiers() {
		if t.Keeps && c.Age > 0 {
			now.Bytes += t.Kept
			now.Limit += t.Limit
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now.Damages, now.Damaged = c.damages, c.lastDamage
	return now
}
