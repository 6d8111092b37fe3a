package embedded

import (
	"strings"
	"testing"
	"time"
)

func TestTheDaemonsHearOfTheBuffer(t *testing.T) {
	for want, b := range map[string]Buffer{
		"--buffer-limit 4096 --buffer-memory 0 --buffer-quota 0 --cache-age 0s --cache-spare 0": {Disk: 4096, RedisSecret: "cache", RedisLimit: 7},
		"--buffer-limit 4096 --buffer-memory 2048 --buffer-quota 1024 --cache-age 1h0m0s --cache-spare 20 --buffer-quota-inputs 5 --buffer-redis redis://10.0.0.9:6379/1 --buffer-redis-secret cache --buffer-redis-limit 7": {
			Disk: 4096, Memory: 2048, Quota: 1024, QuotaInputs: 5, CacheAge: time.Hour, CacheSpare: 20, Redis: "redis://10.0.0.9:6379/1", RedisSecret: "cache", RedisLimit: 7},
	} {
		if err := b.check(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(b.args(), " "); got != want {
			t.Errorf("the daemon gets %s\nwant %s", got, want)
		}
	}
}

func TestTheLargestInputIsInOnePlaceAndWithinTheQuota(t *testing.T) {
	for want, b := range map[int64]Buffer{
		3072: {Disk: 4096},
		3276: {Disk: 4096, Memory: 2048},
		1024: {Disk: 4096, Memory: 2048, Quota: 1024},
		4000: {Disk: 4096, Redis: "redis://10.0.0.9:6379/1", RedisLimit: 5000},
	} {
		if got := b.largest(); got != want {
			t.Errorf("%+v: %d, want %d", b, got, want)
		}
	}
}

// What the daemon would not start with is said before, and no password with it.
func TestWrongBuffersAreRefused(t *testing.T) {
	const redis = "--buffer-redis: use redis://host:port/db, or rediss:// for TLS, and --buffer-redis-secret for credentials"
	for want, b := range map[string]Buffer{
		"--buffer-memory -1: use a number of 0 or more":                               {Memory: -1},
		"--buffer-quota -1: use a number of 0 or more":                                {Quota: -1},
		"--buffer-quota-inputs -1: use a number of 0 or more":                         {QuotaInputs: -1},
		"--cache-age -1s, --cache-spare 0: use a duration of 0 or more, and 0 to 100": {CacheAge: -time.Second},
		"--buffer-redis-limit -1: use a number of 0 or more":                          {RedisLimit: -1},
		redis: {Redis: "redis://user:hunter2@10.0.0.9:6379/1"},
	} {
		if err := b.check(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, address := range []string{"10.0.0.9:6379", "http://10.0.0.9", "redis://:6379", "\x00"} {
		if err := (Buffer{Redis: address}).check(); err == nil || err.Error() != redis {
			t.Errorf("%q: %v", address, err)
		}
	}
}
