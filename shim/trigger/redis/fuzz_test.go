package redis

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// An entry has the producer's fields, each as the server gave it.
func FuzzEntry(f *testing.F) {
	f.Add("1-0", "payload", "a\x00b", 1)
	f.Add("", "", "", -1)
	f.Fuzz(func(t *testing.T, id, field, value string, tries int) {
		e := entry(redis.XMessage{ID: id, Values: map[string]any{field: value, "odd": tries}}, tries)
		if e.ID != id || e.Tries != tries || field != "odd" && e.Fields[field] != value || e.Fields["odd"] != "" && field != "odd" {
			t.Errorf("%+v", e)
		}
	})
}
