package stores

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Words of the field fresh, besides durations.
const (
	freshAsk    = "ask"
	freshAlways = "always"
)

// FreshAlways is how long the answers of a bucket hold whose objects never change.
const FreshAlways time.Duration = math.MaxInt64

// parseFresh reads how long a bucket's answers hold.
func parseFresh(s string) (time.Duration, error) {
	switch s {
	case freshAsk:
		return 0, nil
	case freshAlways:
		return FreshAlways, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("it is not above 0")
	}
	return d, err
}

// validateFresh checks the field fresh. Of Redis nobody can ask whether a value has changed, or say that none does.
func (e entry) validateFresh(check checker) {
	one := len(e.kinds()) == 1
	for _, bucket := range slices.Sorted(maps.Keys(e.Fresh)) {
		text, at := e.Fresh[bucket], fmt.Sprintf(".fresh[%q]", bucket)
		if one && !e.store().Allows(bucket) {
			check(at, text, "is of no bucket of the store", "name one of the store's buckets, keyspaces or hosts")
		}
		d, err := parseFresh(text)
		switch {
		case err != nil:
			check(at, text, "is neither a duration nor ask or always", "write it like 30s or 12h")
		case e.Redis != nil && (d == 0 || d == FreshAlways):
			check(at, text, "is not for Redis, which has no versions", "write a duration like 30s, or leave it out to have each value fetched")
		case e.S3 != nil && e.S3.Write[bucket] == WriteBack && d != 0 && d != FreshAlways:
			check(at, text, "is not for a bucket with write: "+WriteBack+", of which no node reads anything older",
				"use ask, or always if keys are written once")
		}
	}
}
