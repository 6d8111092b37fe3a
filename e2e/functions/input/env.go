package input

import (
	"cmp"
	"errors"
	"sync"
)

const (
	inputDir = "/headstart/input"
	// inputLimit bounds the memory of a request: about a quarter of an hour of video.
	inputLimit = 1 << 30
)

// New returns the reader of a function with that environment. Its files are in
// HEADSTART_INPUT_DIR, and its store is the Redis at REDIS_ADDRESS, or else the S3 server at
// S3_ENDPOINT.
func New(env func(string) string) *Reader {
	return &Reader{Dir: cmp.Or(env("HEADSTART_INPUT_DIR"), inputDir), Limit: inputLimit, Objects: storeOf(env)}
}

// storeOf makes the store on the first call: a function whose input is brought to it does
// not spend its start on a client.
func storeOf(env func(string) string) func() (Objects, error) {
	return sync.OnceValues(func() (Objects, error) {
		if address := env("REDIS_ADDRESS"); address != "" {
			return NewRedis(address, env("REDIS_PASSWORD")), nil
		}
		endpoint, region := env("S3_ENDPOINT"), env("S3_REGION")
		if endpoint == "" || region == "" {
			return nil, errors.New("S3_ENDPOINT or S3_REGION is not set, and a request needs the store")
		}
		return NewS3(endpoint, region, env("S3_ACCESS_KEY_ID"), env("S3_SECRET_ACCESS_KEY")), nil
	})
}
