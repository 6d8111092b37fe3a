package input

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisTimeout is enough for the largest value, 512 MB, over 100 Mbit/s.
const redisTimeout = time.Minute

// Redis is a key-value store. A bucket is what the key has before its first colon.
type Redis struct{ client *redis.Client }

// NewRedis returns the store at host:port.
func NewRedis(address, password string) *Redis {
	return &Redis{redis.NewClient(&redis.Options{Addr: address, Password: password, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
		MaxRetries: -1, DisableIdentity: true})}
}

func redisKey(bucket, key string) string { return bucket + ":" + key }

// Get reads a value by one GET, as functions do.
func (r *Redis) Get(ctx context.Context, bucket, key string, limit int64) ([]byte, error) {
	data, err := r.client.Get(ctx, redisKey(bucket, key)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, refuse(http.StatusNotFound, "key %q in keyspace %q: there is none", key, bucket)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", refuse(http.StatusBadGateway, "key %q in keyspace %q: the store cannot be reached or broke off", key, bucket), err)
	case int64(len(data)) > limit:
		return nil, tooLarge(limit)
	}
	return data, nil
}

// Put stores a value.
func (r *Redis) Put(ctx context.Context, bucket, key string, data []byte) error {
	return r.client.Set(ctx, redisKey(bucket, key), data, 0).Err()
}
