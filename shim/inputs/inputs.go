// Package inputs is where a daemon has the inputs of its node: the tiers of the buffer as the flags say
// them, and the directories that two daemons of a node share while one takes over from the other.
package inputs

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/remote"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// The tiers of the buffer, in the order in which they are used.
const (
	tierMemory = "memory"
	tierDisk   = "disk"
	tierRedis  = "redis"
)

const (
	// memoryDir is what is on a tmpfs, below --run-dir.
	memoryDir = "memory"
	// memoryShare is which part of the memory one input may take: one large input, which
	// waits for the network anyway, shall not keep many small ones out.
	memoryShare = 4
	// quotaShare is which part of the buffer one function may take when nothing else is
	// said: with 4, three quarters.
	quotaShare = 4
)

// Config says where inputs are, and how many.
type Config struct {
	StateDir, RunDir, SecretsDir string
	// Shared: the node may have a second daemon for a while.
	Shared bool
	// Disk and Memory are how many bytes of inputs may be there at a time. Without Memory no tier is in
	// memory; with it, RunDir has to be on a tmpfs.
	Disk, Memory int64
	// Redis takes inputs when the others are full: redis://host:port/db; empty for none. RedisLimit is
	// how many bytes this node may have there, and RedisSecret names the file with its credentials in
	// SecretsDir, empty for none.
	Redis, RedisSecret string
	RedisLimit         int64
	// Spare is how many percent of their file systems stay free beside what is kept.
	Spare int64
	// Quota is what one function may have; without Bytes three quarters of all tiers.
	Quota buffer.Quota
	Log   *slog.Logger
}

// Inputs are the inputs of a daemon.
type Inputs struct {
	*buffer.Buffer
	// Memory has the sandboxes' directories for inputs in memory; nil for none.
	Memory *staging.Memory
	// Succeeds: another daemon of the node has inputs, too.
	Succeeds bool
	// Alone is closed when no other daemon of the node has inputs any more, and with that nothing else.
	Alone    chan struct{}
	redis    *remote.Client // nil: none
	left     []left         // what may be in use by another daemon
	unshared func()         // closes Alone
	log      *slog.Logger
}

// left is the directory of another slot, and the daemon's own one, which takes over what is kept there.
type left struct {
	directory string
	to        *buffer.Files
}

// succeed takes over what is in the other slots, and tells whether another daemon still has one.
func (i *Inputs) succeed(c Config, at func(slot string) string, own string, to *buffer.Files) (again bool) {
	for _, name := range c.slots() {
		if name != own {
			i.left = append(i.left, left{at(name), to})
		}
	}
	return i.Inherit()
}

// Inherit has the buffer find what the node's other daemons kept. again: one of them has not ended yet.
func (i *Inputs) Inherit() (again bool) {
	var still []left
	for _, l := range i.left {
		switch err := l.to.Inherit(l.directory); {
		case errors.Is(err, buffer.ErrInUse):
			still = append(still, l)
		case err != nil:
			i.log.Error("what the node's other daemon kept is lost", "error", err)
		}
	}
	if i.left = still; len(still) == 0 {
		i.unshared()
	}
	return len(still) > 0
}

// Close removes all inputs, except those that are kept for the next daemon.
func (i *Inputs) Close() error {
	err := i.Buffer.Close()
	i.Memory.Close()
	if i.redis != nil {
		err = errors.Join(err, i.redis.Close())
	}
	return err
}

// slots are the names of the directories of inputs: a daemon has those that no other
// process has.
func (c Config) slots() []string {
	if c.Shared {
		return []string{"buffer", "buffer-2"}
	}
	return []string{"buffer"}
}

// state is the path of something that survives a restart.
func (c Config) state(name string) string { return filepath.Join(c.StateDir, name) }

// Open opens the first slot that is free, and takes over what a process left in the others.
func Open(c Config) (_ *Inputs, err error) {
	var slot string
	var disk *buffer.Files
	i := &Inputs{log: c.Log, Alone: make(chan struct{})}
	i.unshared = sync.OnceFunc(func() { close(i.Alone) })
	for _, name := range c.slots() {
		if disk, err = buffer.OpenFiles(c.state(name)); err == nil {
			slot = name
			break
		}
		if !errors.Is(err, buffer.ErrInUse) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	i.Succeeds = i.succeed(c, c.state, slot, disk)
	tiers := []buffer.Tier{{Name: tierDisk, Limit: c.Disk, Spare: c.Spare, Medium: disk}}
	defer func() {
		if err != nil {
			i.Buffer = buffer.New(buffer.Quota{}, tiers...)
			err = errors.Join(err, i.Close())
		}
	}()
	if memory, err := c.openMemory(i, slot); err != nil {
		return nil, err
	} else if memory != nil {
		tiers = append([]buffer.Tier{*memory}, tiers...)
	}
	if c.Redis != "" {
		redis, err := c.openRedis(i, slot)
		if err != nil {
			return nil, err
		}
		tiers = append(tiers, redis)
	}
	i.Buffer = buffer.New(c.quota(tiers), tiers...)
	return i, nil
}

// openMemory opens the tier in memory, nil if there is to be none.
func (c Config) openMemory(i *Inputs, slot string) (*buffer.Tier, error) {
	if c.Memory == 0 {
		return nil, c.clearMemory(i)
	}
	if err := os.MkdirAll(c.memory(""), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for inputs in memory: %w", err)
	}
	var system unix.Statfs_t
	if err := unix.Statfs(c.memory(""), &system); err != nil {
		return nil, fmt.Errorf("asking for the file system of %s: %w", c.memory(""), err)
	}
	if system.Type != unix.TMPFS_MAGIC {
		c.Log.Warn("no inputs are buffered in memory: --run-dir is not on a tmpfs", "directory", c.memory(""))
		return nil, nil
	}
	files, err := buffer.OpenFiles(c.memory(slot))
	if err != nil {
		return nil, err
	}
	if i.Memory, err = staging.OpenMemory(c.memory("instances")); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	i.succeed(c, c.memory, slot, files)
	return &buffer.Tier{Name: tierMemory, Limit: c.Memory, Largest: c.Memory / memoryShare, Spare: c.Spare, Medium: files}, nil
}

// clearMemory removes what a daemon left that had a tier in memory.
func (c Config) clearMemory(i *Inputs) error {
	run, err := os.OpenRoot(c.RunDir)
	if errors.Is(err, fs.ErrNotExist) || i.Succeeds { // the other daemon may have one
		return nil
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	defer run.Close() // It only names the directory.
	if err := staging.Clear(run, memoryDir); err != nil {
		return err
	}
	_ = run.Remove(memoryDir) // it may be a mount of the operator's, or not there
	return nil
}

// memory is the path of something in the directory for inputs in memory.
func (c Config) memory(name string) string { return filepath.Join(c.RunDir, memoryDir, name) }

// openRedis opens the tier in the operator's Redis.
func (c Config) openRedis(i *Inputs, slot string) (buffer.Tier, error) {
	address, err := remote.ParseAddress(c.Redis)
	if err != nil {
		return buffer.Tier{}, fmt.Errorf("--buffer-redis: %w", err)
	}
	name, err := c.redisName(slot)
	if err != nil {
		return buffer.Tier{}, err
	}
	i.redis = remote.Connect(address, c.redisCredentials)
	medium := remote.Open(i.redis, name, randomName(), c.Log)
	return buffer.Tier{Name: tierRedis, Limit: c.RedisLimit, Medium: medium}, nil
}

// redisCredentials reads the secret anew for each connection.
func (c Config) redisCredentials() (username, password string, err error) {
	if c.RedisSecret == "" {
		return "", "", nil
	}
	secrets, err := os.OpenRoot(c.SecretsDir)
	if err != nil {
		return "", "", fmt.Errorf("--secrets-dir: %w", err)
	}
	defer secrets.Close() // It was only read from.
	s, err := secret.Load(secrets, c.RedisSecret, "username", "password")
	if err != nil {
		return "", "", fmt.Errorf("--buffer-redis-secret: %w", err)
	}
	return s.Get("username"), s.Get("password"), nil
}

// redisName is the name of the slot in the Redis. It lies beside the inputs: nodes of two
// clusters that use one Redis may have the same name, but not the same disk.
func (c Config) redisName(slot string) (string, error) {
	path := filepath.Join(c.state(slot), "redis-name")
	name, err := os.ReadFile(path)
	if _, malformed := hex.DecodeString(string(name)); err == nil && malformed == nil && len(name) == len(randomName()) {
		return string(name), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the node's name in the buffer's Redis: %w", err)
	}
	made := randomName()
	if err := renameio.WriteFile(path, []byte(made), 0o600); err != nil {
		return "", fmt.Errorf("noting the node's name in the buffer's Redis: %w", err)
	}
	return made, nil
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// quota is what one function may have of the tiers.
func (c Config) quota(tiers []buffer.Tier) buffer.Quota {
	q := c.Quota
	q.Fair = true
	if q.Bytes == 0 {
		var all int64
		for _, t := range tiers {
			all += t.Limit
		}
		q.Bytes = all - all/quotaShare
	}
	return q
}
