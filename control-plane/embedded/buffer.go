package embedded

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Buffer is where each node has inputs until their requests are over. But for Disk, zero values
// are what the daemon does by itself.
type Buffer struct {
	// Disk and Memory are how many bytes of inputs may be there at a time.
	Disk, Memory int64
	// Quota is how many bytes one function may have of all, QuotaInputs how many inputs.
	Quota       int64
	QuotaInputs int
	// CacheAge is how long objects are kept that no request uses; 0: none is. CacheSpare is how many percent of the
	// file systems stay free beside them.
	CacheAge   time.Duration
	CacheSpare int
	// CacheShare has the nodes share what they keep. On one machine that is of use to tests alone.
	CacheShare bool
	// Redis takes what the others have no room for: redis://host:port/db, or rediss://. It has
	// to be reached from the nodes' network. Empty: there is none.
	Redis string
	// RedisSecret is the name of a file in SecretsDir; empty: none is needed.
	RedisSecret string
	// RedisLimit is how many bytes each node may have there.
	RedisLimit int64
}

// check says what is wrong.
func (b Buffer) check() error {
	var errs []error
	for flag, n := range map[string]int64{"memory": b.Memory, "quota": b.Quota, "quota-inputs": int64(b.QuotaInputs), "redis-limit": b.RedisLimit} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("--buffer-%s %d: use a number of 0 or more", flag, n))
		}
	}
	if b.CacheAge < 0 || b.CacheSpare < 0 || b.CacheSpare > 100 {
		errs = append(errs, fmt.Errorf("--cache-age %v, --cache-spare %d: use a duration of 0 or more, and 0 to 100", b.CacheAge, b.CacheSpare))
	}
	if b.Redis == "" {
		return errors.Join(errs...)
	}
	u, err := url.Parse(b.Redis)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || u.User != nil {
		// Not repeated: it may hold a password.
		errs = append(errs, errors.New("--buffer-redis: use redis://host:port/db, or rediss:// for TLS, and --buffer-redis-secret for credentials"))
	}
	return errors.Join(errs...)
}

// quotaShare is what the daemon leaves to other functions, as a part of all, unless it is told a
// quota.
const quotaShare = 4

// namespaceShare is what a namespace leaves to others of each place, as a part of it.
const namespaceShare = 5

// largest is how many bytes one input can have: it is in one place, within its function's quota and its
// namespace's share.
func (b Buffer) largest() int64 {
	places := []int64{b.Disk, b.Memory}
	if b.Redis != "" {
		places = append(places, b.RedisLimit)
	}
	var all int64
	for _, room := range places {
		all += room
	}
	quota := b.Quota
	if quota == 0 {
		quota = all - all/quotaShare
	}
	place := slices.Max(places)
	return min(quota, place-(place+namespaceShare-1)/namespaceShare)
}

// args are the daemon's flags.
func (b Buffer) args() []string {
	args := []string{"--buffer-limit", strconv.FormatInt(b.Disk, 10), "--buffer-memory", strconv.FormatInt(b.Memory, 10), "--buffer-quota", strconv.FormatInt(b.Quota, 10),
		"--cache-age", b.CacheAge.String(), "--cache-spare", strconv.Itoa(b.CacheSpare)}
	if b.CacheShare {
		args = append(args, "--cache-share")
	}
	if b.QuotaInputs > 0 {
		args = append(args, "--buffer-quota-inputs", strconv.Itoa(b.QuotaInputs))
	}
	if b.Redis == "" {
		return args
	}
	args = append(args, "--buffer-redis", b.Redis, "--buffer-redis-secret", b.RedisSecret)
	if b.RedisLimit > 0 {
		args = append(args, "--buffer-redis-limit", strconv.FormatInt(b.RedisLimit, 10))
	}
	return args
}
