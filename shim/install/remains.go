package install

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// The daemon's directories on the node. A platform that runs on the node itself may use
// them, too: only what the daemon of a cluster makes is removed.
const (
	daemonState = "/var/lib/headstart"
	// daemonWrites has objects until their stores have them, and stays as long.
	daemonWrites = daemonState + "/writes"
	daemonRun    = "/run/headstart"
	// platformLock is there while such a platform runs; it has an otlp.sock of its own.
	platformLock = daemonRun + "/lock"
	otlpSocket   = daemonRun + "/otlp.sock"
)

// daemonFiles are what the daemon makes. Sockets are there after a kill only.
var daemonFiles = []string{
	daemonState + "/instances", daemonState + "/buffer", daemonState + "/buffer-2", daemonState + "/volumes",
	daemonState + "/endpoints.pb", daemonState + "/endpoints.pb.new", daemonState + "/gateway-keys.json",
	daemonState + "/s3-learned.json", daemonState + "/callers", daemonState + "/redis",
	daemonRun + "/gateway", daemonRun + "/memory", daemonRun + "/node.sock", daemonRun + "/descriptors.sock",
	daemonRun + "/endpoints.sock", daemonRun + "/streams.sock",
}

// removeRemains removes what the daemon, which has ended, has left on the node, and returns
// the paths that stay: others use them, or what is in them is nowhere else.
func removeRemains(t *tree.Tree) (stay []string, err error) {
	files := daemonFiles
	if !t.Exists(platformLock) {
		files = append(files[:len(files):len(files)], otlpSocket)
	}
	for _, p := range files {
		// A file system of its own, for the buffer say, is its operator's: it is emptied.
		if err := t.RemoveAll(p); errors.Is(err, unix.EBUSY) {
			stay = append(stay, p)
		} else if err != nil {
			return stay, err
		}
	}
	for _, dir := range []string{daemonWrites, daemonState, daemonRun} {
		gone, err := removeUnused(t, dir)
		if err != nil {
			return stay, err
		}
		if !gone {
			stay = append(stay, dir)
		}
	}
	return stay, nil
}

// removeUnused removes a directory that is empty, and neither a link nor a mount.
func removeUnused(t *tree.Tree, dir string) (gone bool, err error) {
	names, err := t.List(dir)
	if err != nil || len(names) > 0 {
		return false, err
	}
	parent, err := t.Resolve(path.Dir(dir))
	if err != nil {
		return false, err
	}
	if at, err := t.Resolve(dir); err != nil || at != path.Join(parent, path.Base(dir)) {
		return false, err
	}
	err = t.Remove(dir)
	if errors.Is(err, unix.EBUSY) {
		return false, nil
	}
	return err == nil, err
}
