package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

const (
	// inotifyFile is how many inotify instances a user may have. All nodes and all pods of
	// root's share them, and the kernel's default of 128 is for one node.
	inotifyFile      = "/proc/sys/fs/inotify/max_user_instances"
	inotifyInstances = 1024
	// savedLimit keeps what this machine had, also when we are killed.
	savedLimit = "inotify-instances"
)

func (s *supervisor) raiseLimits() error {
	before, err := os.ReadFile(inotifyFile)
	if err != nil {
		return fmt.Errorf("reading this machine's limits: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		return fmt.Errorf("reading %s: %w", inotifyFile, err)
	}
	if n >= inotifyInstances {
		return nil
	}
	if err := os.WriteFile(s.path(savedLimit), before, 0o600); err != nil {
		return err
	}
	return setLimit(strconv.Itoa(inotifyInstances))
}

// restoreLimits undoes raiseLimits, of a killed cluster too.
func (s *supervisor) restoreLimits() error {
	before, err := os.ReadFile(s.path(savedLimit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A file that was being written when we were killed is empty: then nothing was changed yet.
	if value := strings.TrimSpace(string(before)); value != "" {
		if err := setLimit(value); err != nil {
			return err
		}
	}
	return os.Remove(s.path(savedLimit))
}

func setLimit(value string) error {
	if err := os.WriteFile(inotifyFile, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting this machine's limits: %w", err)
	}
	return nil
}
