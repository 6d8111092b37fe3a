package containerd

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// maxUnit bounds a unit's file, in bytes.
const maxUnit = 64 << 10

// unitDirs are where systemd finds units, by precedence: systemd.unit(5).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

var unitOfCgroup = regexp.MustCompile(`/([^/\n]+\.service)\n`)

// ending is the signal after which systemd starts p again. Where it is not systemd that
// waits for p, whoever does is trusted to.
func ending(files *tree.Tree, p process) (unix.Signal, error) {
	unit := unitOfCgroup.FindSubmatch(p.cgroup)
	if files == nil || p.parent != 1 || unit == nil {
		return unix.SIGTERM, nil
	}
	name := string(unit[1])
	policy, known := restartPolicy(files, name)
	switch {
	case !known, policy == "always", policy == "on-success":
		return unix.SIGTERM, nil
	case strings.HasPrefix(policy, "on-"):
		// It counts an end by SIGTERM as intended. Containers do not mind a sudden one: they
		// belong to their shims.
		return unix.SIGKILL, nil
	}
	return 0, fmt.Errorf("systemd would not start containerd again (%s has Restart=%s); set Restart=always in a drop-in of the unit, "+
		"or install with --restart=never and restart it yourself", name, policy)
}

// restartPolicy is what a unit and its drop-ins say of Restart, and whether there is such
// a unit.
func restartPolicy(files *tree.Tree, unit string) (policy string, known bool) {
	policy = "no" // systemd's default
	for _, dir := range unitDirs {
		f, err := files.Read(path.Join(dir, unit), maxUnit)
		if err != nil {
			continue
		}
		policy, known = restartIn(f.Data, policy), true
		break
	}
	// Drop-ins of all directories count, those of the first directory most.
	for i := range unitDirs {
		dir := path.Join(unitDirs[len(unitDirs)-1-i], unit+".d")
		names, err := files.List(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if f, err := files.Read(path.Join(dir, name), maxUnit); err == nil && path.Ext(name) == ".conf" {
				policy = restartIn(f.Data, policy)
			}
		}
	}
	return policy, known
}

// restartIn is what a unit's text says of Restart, else what was said before.
func restartIn(text []byte, before string) string {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if v, ok := strings.CutPrefix(strings.ReplaceAll(s.Text(), " ", ""), "Restart="); ok {
			before = v
		}
	}
	return before
}
