// Package gatekey makes the keys by which a node's daemon knows its gateways, and what they send for a function.
//
// In a mesh, routes are their namespaces' to write. A route can set any header, after all filters, and
// with an address of its own it can send a request to the daemon's socket. A key stands only in the
// endpoint that the daemon itself gives a function's cluster, and gateways put it into requests after
// their routes (manifests/istio/keys.yaml). It is good for that function, this node and some two
// hours: a route's response headers can tell an endpoint's metadata, and so the key of a function that
// the route leads to, which gets its author nothing that the route does not.
//
// Where gateways speak for themselves, they have a key as well: for endpoints, reports and hints. They read it
// from a file, because all other configuration that would bring it comes by these ways, or is the same on all nodes
// (manifests/istio/gateways.yaml).
package gatekey

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

const (
	// life is for how long a key is given out, by the clock's hours, and for how long it counts after
	// that.
	life = time.Hour
	// grace is for how long a node without a secret takes requests without a key: its gateways have
	// an older daemon's endpoints, which have none, until they have heard of this one's. They try to
	// connect each second.
	grace = time.Minute
	// retry is the time between two tries to tell the gateways.
	retry = 10 * time.Second
	// look is the time between two looks at the clock: it is set forward on a node that has begun without it, or has slept.
	look = time.Minute
	// keyBytes is half of the code's size, the least that RFC 2104, section 5, advises.
	keyBytes    = sha256.Size / 2
	secretBytes = sha256.Size
	// gateways have a key for themselves. No function has such a name.
	gateways = "gateways"
)

// Keys are a node's. Its zero value is not usable.
type Keys struct {
	// Secret outlives the daemon: gateways go on with the keys that they have.
	Secret []byte `json:"secret"`
	// KeylessUntil is the end of grace.
	KeylessUntil time.Time `json:"keylessUntil"`
}

// Open reads the node's secret in a file of mode 0600, or makes it. Its directory must exist.
func Open(file string) (*Keys, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return create(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the secret of the gateways' keys: %w", err)
	}
	k := &Keys{}
	if err := json.Unmarshal(data, k); err != nil || len(k.Secret) != secretBytes {
		return nil, fmt.Errorf("reading the secret of the gateways' keys: %s is damaged; remove it, and start again", file)
	}
	return k, nil
}

func create(file string) (*Keys, error) {
	k := &Keys{Secret: make([]byte, secretBytes), KeylessUntil: time.Now().Add(grace)}
	_, _ = rand.Read(k.Secret) // never fails
	data, err := json.Marshal(k)
	if err == nil {
		err = renameio.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping the secret of the gateways' keys: %w", err)
	}
	return k, nil
}

// WriteFile has the node's gateways, which run as the user uid, find their own key in file. They read it
// whenever they begin to speak.
func (k *Keys) WriteFile(file string, uid int) error {
	err := k.write(file, uid)
	if err != nil {
		return fmt.Errorf("telling the gateways their key: %w", err)
	}
	return nil
}

func (k *Keys) write(file string, uid int) error {
	f, err := renameio.NewPendingFile(file, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // of what was not written
	if _, err := f.WriteString(k.Of(gateways)); err != nil {
		return err
	}
	if err := f.Chown(uid, -1); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Of is the key of a function, by its namespace/name.
func (k *Keys) Of(function string) string { return k.of(function, time.Now()) }

// Valid tells whether key is the function's, of this hour or the one before.
func (k *Keys) Valid(function, key string) bool {
	if key == "" {
		return time.Now().Before(k.KeylessUntil)
	}
	return k.is(function, key)
}

// Admits tells whether key is the one that gateways have for themselves, of this hour or the one before. There is no
// grace: the file is there before the daemon listens.
func (k *Keys) Admits(key string) bool { return k.is(gateways, key) }

func (k *Keys) is(whose, key string) bool {
	now := time.Now()
	is := func(then time.Time) bool { return hmac.Equal([]byte(k.of(whose, then)), []byte(key)) }
	return is(now) || is(now.Add(-life)) || is(now.Add(life)) // a clock may be set back
}

func (k *Keys) of(function string, then time.Time) string {
	code := hmac.New(sha256.New, k.Secret)
	_ = binary.Write(code, binary.BigEndian, hour(then)) // of fixed size, so no function's name is like it
	_, _ = code.Write([]byte(function))
	return base64.RawURLEncoding.EncodeToString(code.Sum(nil)[:keyBytes])
}

func hour(then time.Time) int64 { return then.Unix() / int64(life.Seconds()) }

// Run has tell tell the gateways when the keys change, until ctx ends.
func (k *Keys) Run(ctx context.Context, tell func() error, log *slog.Logger) {
	for told := hour(time.Now()); ; {
		next := time.Unix((hour(time.Now())+1)*int64(life.Seconds()), 0)
		if wait(ctx, min(look, time.Until(next))) != nil {
			return
		}
		now := hour(time.Now())
		if now == told {
			continue
		}
		told = now
		for err := tell(); err != nil; err = tell() {
			log.Error("the gateways keep the keys that they have, which count for an hour more", "error", err)
			if wait(ctx, retry) != nil {
				return
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
